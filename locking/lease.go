package locking

import (
	"context"
	"errors"
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

	worker string // see instant
	lapses int64
	offset int64  // of its token within the block
	holder holder // the Gate's part of the lease, or nil

	release    sync.Once
	releaseErr error
}

// holder can hand a lease off to the next caller of the process. Its methods are called without the lease's mutex.
type holder interface {
	// handOff offers the keys of a lease that is being released to the next caller, and reports whether there is one.
	handOff(l *Lease) bool
	// releasing is called before a script releases the lease, and reports whether callers wait for one of the keys. The
	// script notifies those that were refused until then.
	releasing() (awaited bool)
	// released is called after the backend has released the lease; notify says whether the backend has notified others, or
	// would have to. It reports whether callers of this process were refused that are to be notified, too.
	released(l *Lease, notify bool) (refused bool)
	// lost is called after the lease was lost.
	lost(l *Lease)
	// last has the lease not be handed off to the next caller.
	last(l *Lease)
}

// leaseContext is a context that ends with a lease.
type leaseContext struct {
	context.Context

	cancel context.CancelCauseFunc
}

// lossAt says why a lease that ends by its time is lost.
var lossAt = map[leasing.End]LossReason{leasing.Expired: LossExpired, leasing.HeldLongest: LossMaxHold}

// Keys returns the keys of the lease, sorted and without duplicates.
func (l *Lease) Keys() []string {
	if l == nil {
		return nil
	}
	return slices.Clone(l.keys)
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

// check ends the lease if its time is over, and returns its age. The caller holds the mutex.
func (l *Lease) check() (now time.Duration) {
	now = l.watch.Elapsed()
	if l.cause != nil {
		return now
	}
	if joined, ok := l.grant.(interface{ lost() error }); ok {
		if err := joined.lost(); err != nil {
			l.end(err)
			return now
		}
	}
	if err := l.silenced(); err != nil {
		l.end(&LostError{Keys: l.keys, Reason: LossExpired, Err: err})
		return now
	}
	if next := l.term.Next(now); next.End != leasing.Lasts {
		l.end(&LostError{Keys: l.keys, Reason: lossAt[next.End], Err: l.lastErr})
	}
	return now
}

// silenced returns why others may have taken its locks, although they would have lasted longer: the worker that they tell was silent. It
// returns nil if they may not.
func (l *Lease) silenced() error {
	if l.worker == "" {
		return nil
	}
	return l.suspension.silence.over(l.lapses)
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
