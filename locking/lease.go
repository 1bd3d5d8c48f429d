package locking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/locking/backend"
)

// Lease is the right to work on some keys until it is released or lost. It renews itself in the background after each
// third of its TTL: with the default TTL, every 10 s or a little sooner. If the lock vanishes from the server in the
// meantime, for example because an operator deletes it, only the next renewal finds out, and the lease is trusted until
// then.
//
// Every lease must be released, even after it was lost. A nil *Lease is one that has been released: Release does nothing,
// Err is [ErrReleased], and Context has ended. A Lease is safe for concurrent use.
type Lease struct {
	grant     backend.Grant
	keys      []string
	from      Locker // on a backend; nil if the grant says it
	committed atomic.Bool
	notify    atomic.Bool // ShouldNotify
	handedOff atomic.Bool

	mu         sync.Mutex
	watch      leasing.Stopwatch
	suspension *suspensionDetector
	term       leasing.Term
	timer      *time.Timer
	cause      error              // why the lease is over; nil while it is trusted
	done       chan struct{}      // closed when cause is set; made on demand
	contexts   []leaseContext     // to cancel with the lease; some have ended already
	room       int                // the number of contexts at which ended ones are removed
	lastErr    error              // of the last renewal, if it failed
	renewal    chan struct{}      // closed when the background renewal ends, or nil
	stop       context.CancelFunc // of the renewal
	giveUp     time.Duration      // when the renewal is stopped

	offset int64  // of its token within the block
	holder holder // the Gate's part of the lease, or nil

	release    sync.Once
	releaseErr error
}

// holder can hand a lease off to the next caller of the process. Its methods are called without the lease's mutex.
type holder interface {
	// handOff offers the keys of a lease that is being released to the next caller, and reports whether there is one.
	handOff(l *Lease) bool
	// released is called after the backend has released the lease. Its argument and its result say whether the release
	// must notify other callers.
	released(l *Lease, notify bool) bool
	// lost is called after the lease was lost.
	lost(l *Lease)
}

// lossAt says why a lease that ends by its time is lost.
var lossAt = map[leasing.End]LossReason{leasing.Expired: LossExpired, leasing.HeldLongest: LossMaxHold}

// newLease returns the lease for a grant. The keys and options are results of prepare; began is when the first request
// was about to be sent. If the grant has expired since then, the error matches ErrLost.
//
// A grant that comes so late that less than a third of the TTL is left is renewed first. Otherwise its holder would
// begin, and would lose the lease before the first renewal is answered. If this renewal is not answered while ctx and
// the grant last, or within 5 s, the error matches ErrLost, too.
func newLease(ctx context.Context, grant backend.Grant, keys []string, opts Options, began instant) (*Lease, error) {
	l := &Lease{
		grant: grant, keys: keys, watch: began.watch, suspension: began.suspension,
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
	l.start(next.Sleep)
	return l, nil
}

// start sets the first timer of the lease.
func (l *Lease) start(after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(after, l.tick)
	l.suspension.add(l)
}

// Keys returns the keys of the lease, sorted and without duplicates.
func (l *Lease) Keys() []string {
	if l == nil {
		return nil
	}
	return slices.Clone(l.keys)
}

// Fence returns the fencing token of the first of [Lease.Keys]: a positive number below 2^53 that is larger than the
// token of every earlier lease of the key. Fence waits until the token is certain; on a single server it is certain at
// once. The error matches [ErrLost] if the lease was lost.
func (l *Lease) Fence(ctx context.Context) (int64, error) { return l.fence(ctx, 0) }

// FenceOf returns the fencing token of one of the lease's keys: see [Lease.Fence]. It returns an error if the lease is
// not for that key.
func (l *Lease) FenceOf(ctx context.Context, key string) (int64, error) {
	if l == nil {
		return 0, ErrReleased
	}
	i, ok := slices.BinarySearch(l.keys, key)
	if !ok {
		return 0, fmt.Errorf("locking: no token for key %q: this lease is for %q", key, l.keys)
	}
	return l.fence(ctx, i)
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// fence returns the token of the i-th key. It waits no longer than the lease lasts.
func (l *Lease) fence(ctx context.Context, i int) (int64, error) {
	if l == nil {
		return 0, ErrReleased
	}
	token, err := l.grant.Fence(ended, i) // succeeds if the token is certain, which it nearly always is
	if err != nil {
		during, drop := l.during(ctx)
		defer drop()
		if token, err = l.grant.Fence(during, i); err != nil {
			return 0, cmp.Or(l.Err(), err)
		}
	}
	// A token that became certain after the end of the lease may be smaller than those of later leases.
	if err := l.Err(); errors.Is(err, ErrLost) {
		return 0, err
	}
	return token + l.offset, nil
}

// ValidUntil returns when the lease ends without a renewal.
func (l *Lease) ValidUntil() time.Time {
	if l == nil {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Add(l.term.Until - l.watch.Elapsed())
}

// Err returns nil while the lease can be trusted, then [ErrReleased] or an error that matches [ErrLost].
func (l *Lease) Err() error {
	if l == nil {
		return ErrReleased
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check()
	return l.cause
}

// MarkCommitted records that the holder's work is committed under its fencing token, so that a later loss of the lease
// does not matter: [Do] and package middleware then treat the work as done.
func (l *Lease) MarkCommitted() {
	if l != nil {
		l.committed.Store(true)
	}
}

// Committed reports whether MarkCommitted was called.
func (l *Lease) Committed() bool { return l != nil && l.committed.Load() }

// age returns how long ago the lease's first request was about to be sent.
func (l *Lease) age() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watch.Elapsed()
}

// isOf reports whether l comes from a Locker.
func (l *Lease) isOf(locker Locker) bool {
	type owned interface{ isOf(l Locker) bool }
	l.mu.Lock()
	holder, ok := l.holder.(owned)
	l.mu.Unlock()
	if ok && holder.isOf(locker) {
		return true
	}
	grant, ok := l.grant.(owned)
	return ok && grant.isOf(locker) || l.from != nil && l.from == locker
}

// check ends the lease if its time is over, and returns its age. The caller holds the mutex.
func (l *Lease) check() (now time.Duration) {
	now = l.watch.Elapsed()
	if l.cause != nil {
		return now
	}
	if joined, ok := l.grant.(*joinedGrant); ok {
		if err := joined.lost(); err != nil {
			l.end(err)
			return now
		}
	}
	if next := l.term.Next(now); next.End != leasing.Lasts {
		l.end(&LostError{Keys: l.keys, Reason: lossAt[next.End], Err: l.lastErr})
	}
	return now
}

// end ends the lease with a cause, once. The caller holds the mutex.
func (l *Lease) end(cause error) {
	if l.cause != nil {
		return
	}
	l.cause = cause
	if l.stop != nil {
		l.stop()
	}
	l.timer.Stop()
	l.suspension.drop(l)
	if l.done != nil {
		close(l.done)
	}
	for _, c := range l.contexts {
		c.cancel(cause)
	}
	if l.holder != nil && errors.Is(cause, ErrLost) {
		go l.holder.lost(l)
	}
	l.contexts = nil
}
