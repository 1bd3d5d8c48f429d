package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/internal/redact"
	"github.com/railtoken/railtoken/locking"
)

// wakeTimeout is the maximum duration of the wakes after a release.
const wakeTimeout = 5 * time.Second

// handle runs the handler under the lease and releases the keys when it returns.
func (r *run) handle(ctx context.Context, lease *locking.Lease, next asynq.Handler) error {
	r.observe(ctx, Event{Kind: Acquired, Waited: r.waited()})
	r.began = time.Now()
	err := next.ProcessTask(locking.NewContext(lease.Context(ctx), lease), r.task)
	failed := err != nil || ctx.Err() != nil || lease.Err() != nil && !lease.Committed()
	lost := r.giveBack(ctx, lease, r.ordering.stays(ctx, failed, err))
	if errors.Is(lost, locking.ErrLost) && !lease.Committed() {
		err = errors.Join(err, lost)
	}
	return err
}

// giveBack releases the keys after the handler. A task that stays keeps its position in the sequence. giveBack returns
// why the lease was lost, or nil.
func (r *run) giveBack(ctx context.Context, lease *locking.Lease, stays bool) error {
	lost := r.release(ctx, lease, !stays)
	if stays && lease.ShouldNotify() {
		r.ordering.wakeAgain(ctx) // asynq may have abandoned this run, and another run of the task waits for the key
	}
	var held time.Duration
	if !r.began.IsZero() {
		held = time.Since(r.began)
	}
	if lost != nil {
		r.observe(ctx, Event{Kind: Lost, Held: held, Err: lost})
	}
	r.observe(ctx, Event{Kind: Released, Held: held, Err: lost})
	return lost
}

// release releases the keys and, for each key that has waiters, wakes the next task. A task that is leaving has ended,
// and gives up its position in the sequence. release returns why the lease was lost, or nil.
func (r *run) release(ctx context.Context, lease *locking.Lease, leaving bool) error {
	lost := lease.Err()
	var left parking.Front
	if leaving {
		left = r.ordering.leave(ctx, lost != nil)
	}
	r.lease = nil
	if err := lease.Release(ctx); err != nil {
		switch loss, ok := errors.AsType[*locking.LostError](err); {
		case ok && loss.Reason != locking.LossTaken:
			// It expired only after the handler had returned, or lost says so already.
		case errors.Is(err, locking.ErrLost):
			lost = err
		default:
			r.warnOfKept(ctx, lease, err)
		}
	}
	if r.Queue != nil {
		r.ordering.wakeNext(ctx, lease, left, leaving)
	}
	return lost
}

// warnOfKept logs that keys could not be released.
func (r *run) warnOfKept(ctx context.Context, lease *locking.Lease, err error) {
	r.Logger.WarnContext(ctx, "keys could not be released; they become free when their TTL ends",
		"task", r.id.String(), "keys", redact.Keys(lease.Keys()), "error", redact.Error(err))
}
