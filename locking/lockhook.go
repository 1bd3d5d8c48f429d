package locking

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
)

func init() {
	leasing.TakeOver = func(ctx context.Context, locker any, r leasing.Request) (any, error) {
		lease, err := takeOver(ctx, locker, r)
		if err != nil {
			return nil, err
		}
		return lease, nil
	}
	leasing.EndWhenDeposed, leasing.Backend, leasing.Store = followDepositions, backendOf, storeOf
	leasing.CloseBy = func(locker io.Closer, deadline time.Time) error {
		if l, ok := locker.(interface {
			closeBy(deadline time.Time) error
		}); ok {
			return l.closeBy(deadline)
		}
		return locker.Close()
	}
	leasing.Leave = func(lease any) { lease.(*Lease).leave() } //nolint:errcheck,forcetypeassert // TakeOver returned it
	leasing.GrantsOf = func(lease any) []any {
		return lease.(*Lease).grants() //nolint:errcheck,forcetypeassert // every caller has a Lease
	}
}

// backendOf returns the name of a locker's backend: redis, redlock, or that of the package that implements it.
func backendOf(locker any) string {
	if l, ok := locker.(interface{ backendName() string }); ok {
		return l.backendName()
	}
	name, _, _ := strings.Cut(strings.TrimLeft(fmt.Sprintf("%T", locker), "*"), ".")
	return name
}

func (g *Gate) backendName() string           { return backendOf(g.inner) }
func (f *followedLocker) backendName() string { return backendOf(f.inner) }
func (l *backendLocker) backendName() string  { return backendOf(l.backend) }
func (*Single) backendName() string           { return "redis" }
func (*Redlock) backendName() string          { return "redlock" }

// grants returns the grants of a lease: see [leasing.GrantsOf].
func (l *Lease) grants() []any {
	joined, ok := l.grant.(*joinedGrant)
	if !ok {
		return []any{l.grant}
	}
	var all []any
	for _, part := range joined.parts {
		all = append(all, part.grants()...)
	}
	return all
}
