package locking

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// lazyDeadline is a context with a deadline, which does not end with its parent. Its timer starts with the first call of
// Done, which is rare.
type lazyDeadline struct {
	context.Context
	deadline time.Time

	once   sync.Once
	timed  context.Context
	cancel context.CancelFunc
	over   atomic.Bool
}

// Deadline returns when the context ends.
func (d *lazyDeadline) Deadline() (time.Time, bool) { return d.deadline, true }

// Done returns a channel that is closed when the context ends.
func (d *lazyDeadline) Done() <-chan struct{} {
	d.once.Do(func() { d.timed, d.cancel = context.WithDeadline(context.WithoutCancel(d.Context), d.deadline) })
	return d.timed.Done()
}

// Err returns why the context has ended, or nil.
func (d *lazyDeadline) Err() error {
	switch {
	case d.over.Load():
		return context.Canceled
	case time.Now().Before(d.deadline):
		return nil
	default:
		return context.DeadlineExceeded
	}
}

// Value returns the parent's value. The parent's cancellation is none: it would be the cause of this context's end.
func (d *lazyDeadline) Value(key any) any { return context.WithoutCancel(d.Context).Value(key) }

// end stops the timer, if it was started, and ends the context.
func (d *lazyDeadline) end() {
	d.over.Store(true)
	d.once.Do(func() { d.timed, d.cancel = ended, func() {} })
	d.cancel()
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
