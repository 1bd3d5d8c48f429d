package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/railtoken/railtoken/locking"
)

const (
	// outagePatience is how long a task sits out an outage of the lock servers in its slot: other tasks could not run
	// in it either.
	outagePatience = 10 * time.Second
	// outageDelay is when a task tries again that has lost its patience.
	outageDelay = 10 * time.Second
)

// try makes one attempt, and more while the lock servers cannot be reached. A task on its last attempt has no other place to
// wait in than its slot, as asynq would archive it: it is moved to a delay queue, or waits on when that fails as well.
func (r *run) try(ctx context.Context) (*locking.Lease, *locking.HeldError, error) {
	opts := r.opts
	opts.Label = r.label + "/" + r.task.Type() + "/" + r.id.ID
	opts.Interest = r.interest
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0))
	for began := time.Now(); ; {
		lease, err := r.locker.Acquire(ctx, r.keys, opts)
		if err == nil {
			return lease, nil, nil
		}
		if held, ok := errors.AsType[*locking.HeldError](err); ok {
			return nil, held, nil
		}
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if !errors.Is(err, locking.ErrUnavailable) {
			return nil, nil, err
		}
		if time.Since(began) >= outagePatience || r.isStopping() {
			if !r.lastAttempt() {
				return nil, nil, &UnavailableError{Err: err, Delay: outageDelay}
			}
			if r.moveAway(ctx) == nil {
				return nil, nil, &UnavailableError{Err: err, Delay: outageDelay, Moved: true}
			}
		}
		timer := time.NewTimer(wait.NextBackOff())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// moveAway moves a task on its last attempt to its delay queue, not because of a conflict.
func (r *run) moveAway(ctx context.Context) error {
	if r.queue == nil {
		return errNoQueue
	}
	_, err := r.queue.Move(ctx, r.id, r.task, r.delayQueue(), outageDelay, r.left, r.before())
	return err
}

var errNoQueue = errors.New("middleware: no delay queue is configured")
