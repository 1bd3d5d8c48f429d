package locking

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// patience is a context with a deadline whose timer starts only when somebody waits for it, which is rare.
type patience struct {
	context.Context
	deadline time.Time

	once   sync.Once
	timed  context.Context
	cancel context.CancelFunc
	over   atomic.Bool
}

// Deadline returns when patience ends.
func (p *patience) Deadline() (time.Time, bool) { return p.deadline, true }

// Done returns a channel that is closed when patience ends.
func (p *patience) Done() <-chan struct{} {
	p.once.Do(func() { p.timed, p.cancel = context.WithDeadline(p.Context, p.deadline) })
	return p.timed.Done()
}

// Err returns why patience has ended, or nil.
func (p *patience) Err() error {
	switch {
	case p.over.Load():
		return context.Canceled
	case time.Now().Before(p.deadline):
		return nil
	default:
		return context.DeadlineExceeded
	}
}

// end stops the timer, if it was started, and ends the context.
func (p *patience) end() {
	p.over.Store(true)
	p.once.Do(func() { p.timed, p.cancel = ended, func() {} })
	p.cancel()
}
