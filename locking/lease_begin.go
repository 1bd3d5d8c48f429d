package locking

import (
	"context"
	"errors"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/locking/backend"
)

// newLease returns the lease for a grant. The keys and options are results of prepare; began is when the first request
// was about to be sent. If the grant has expired since then, the error matches ErrLost.
//
// A grant that comes so late that less than a third of the TTL is left is renewed first. Otherwise its holder would
// begin, and would lose the lease before the first renewal is answered. If this renewal is not answered while ctx and
// the grant last, or within 5 s, the error matches ErrLost, too.
func newLease(ctx context.Context, grant backend.Grant, keys []string, opts Options, began instant) (*Lease, error) {
	l := &Lease{
		grant: grant, keys: keys, watch: began.watch, suspension: began.suspension, worker: began.worker, lapses: began.lapses,
		term: leasing.NewTerm(opts.TTL, opts.MaxHold, leasing.Haste()),
	}
	now := l.watch.Elapsed()
	next := l.term.Next(now)
	if next.Renew && l.term.EndsSoon(now) {
		if err := l.renewFirst(ctx, now, next.TTL); err != nil {
			return nil, err
		}
		next = l.term.Next(l.watch.Elapsed())
	}
	if next.End != leasing.Lasts {
		return nil, &LostError{Keys: keys, Reason: lossAt[next.End]}
	}
	if err := l.silenced(); err != nil {
		return nil, &LostError{Keys: keys, Reason: LossExpired, Err: err}
	}
	l.start(next.Sleep)
	return l, nil
}

// renewFirstTimeout bounds the renewal of a lease that no holder has yet, because its holder waits for it.
const renewFirstTimeout = 5 * time.Second

// renewFirst renews a lease that no holder has yet.
func (l *Lease) renewFirst(ctx context.Context, sent, ttl time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, min(l.term.Until-sent, renewFirstTimeout))
	defer cancel()
	err := l.renewGrant(ctx, ttl)
	switch {
	case errors.Is(err, ErrLost):
		return err
	case err != nil:
		return &LostError{Keys: l.keys, Reason: LossExpired, Err: err}
	case l.watch.Elapsed() < l.term.Until: // otherwise another holder may have had the keys in the meantime
		l.term = l.term.Renewed(sent, ttl)
	}
	return nil
}

// start sets the first timer of the lease.
func (l *Lease) start(after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(after, l.tick)
	l.suspension.add(l)
}

// block returns how many tokens the backend has reserved for each key.
func (l *Lease) block() int {
	if g, ok := l.grant.(backend.BlockGrant); ok {
		return g.Block()
	}
	return 1
}

// setHolder attaches the lease to a Gate. It returns false if another Gate has the lease.
func (l *Lease) setHolder(h holder) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder != nil {
		return false
	}
	l.holder = h
	if errors.Is(l.cause, ErrLost) {
		go h.lost(l)
	}
	return true
}

// next ends the lease and returns one with the next token for another holder. It returns nil if the lease is over, less
// than a third of its TTL is left, or MaxHold is near: then a renewal for less than the TTL may be under way, which
// would shorten the next holder's lease.
func (l *Lease) next(h holder, opts Options) *Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.check()
	if l.cause != nil || l.term.TTL != opts.TTL || l.term.EndsSoon(now) || l.term.MaxHold-now < l.term.TTL {
		return nil
	}
	next := &Lease{
		grant: l.grant, keys: l.keys, from: l.from, offset: l.offset + 1, watch: l.watch, suspension: l.suspension, holder: h,
		worker: l.worker, lapses: l.lapses,
		term: l.term.HandedOff(now, opts.MaxHold),
	}
	next.start(next.term.Next(now).Sleep)
	l.end(ErrReleased)
	return next
}
