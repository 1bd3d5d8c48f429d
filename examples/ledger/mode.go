package main

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// mode is a way to keep two handlers from changing the same account.
type mode string

// The modes, from the weakest.
const (
	noLock       mode = "no lock"
	redisLock    mode = "Redis lock"
	checkOnWrite mode = "check on write"
	claimOnEntry mode = "claim on entry"
	inTx         mode = "pglock.InTx"
)

// modesOn returns the modes that a store can have.
func modesOn(d fence.Dialect) []mode {
	modes := []mode{noLock, redisLock, checkOnWrite, claimOnEntry}
	if d == fence.Postgres {
		modes = append(modes, inTx)
	}
	return modes
}

// strong reports whether the mode promises that nothing is lost.
func (m mode) strong() bool { return m == claimOnEntry || m == inTx }

// guard is what a handler does first in the transaction that reads, and in the one that writes.
type guard struct {
	read, write func(ctx context.Context, tx *sql.Tx) error
}

// guardOf returns the guard of a transfer. ctx is that of the handler.
func guardOf(ctx context.Context, m mode, d fence.Dialect, t transfer) (guard, error) {
	nothing := func(context.Context, *sql.Tx) error { return nil }
	g := guard{read: nothing, write: nothing}
	if m == noLock || m == redisLock {
		return g, nil
	}
	var tokens []fence.Token
	for _, key := range t.keys() {
		token, err := fence.From(ctx, key)
		if err != nil {
			return g, err
		}
		tokens = append(tokens, token)
	}
	lease, ok := locking.FromContext(ctx)
	if !ok {
		return g, fmt.Errorf("transfer %d runs without a lease", t.ID)
	}
	table := fence.SQL{Dialect: d, Table: fenceTable}
	claim := func(ctx context.Context, tx *sql.Tx) error { return table.Claim(ctx, tx, tokens...) }
	check := func(ctx context.Context, tx *sql.Tx) error { return table.Check(ctx, tx, tokens...) }
	hold := func(ctx context.Context, tx *sql.Tx) error { return pglock.InTx(ctx, tx, lease) }
	// once makes a transfer whose task runs again have no second effect.
	once := func(first func(context.Context, *sql.Tx) error) func(context.Context, *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error {
			if err := first(ctx, tx); err != nil {
				return err
			}
			return table.Once(ctx, tx, tokens[0], strconv.Itoa(t.ID))
		}
	}
	switch m {
	case checkOnWrite:
		g.write = once(claim)
	case claimOnEntry:
		g.read, g.write = claim, once(check)
	case inTx:
		g.read, g.write = hold, once(hold)
	default:
		return g, fmt.Errorf("there is no mode %q", m)
	}
	return g, nil
}
