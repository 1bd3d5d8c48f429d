package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/lockhook"
	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/locking"
)

// handle runs the handler under the lease and releases the keys when it returns.
func (r *run) handle(ctx context.Context, lease *locking.Lease, next asynq.Handler) error {
	r.observeAcquired(ctx)
	r.began = time.Now()
	r.list(lease, false)
	r.active.Took(r.keys, false)
	err := next.ProcessTask(locking.NewContext(lease.Context(ctx), lease), r.task)
	if err == nil && ctx.Err() == nil && r.expiredUntouched(ctx, lease) {
		lease.MarkCommitted()
	}
	failed := err != nil || ctx.Err() != nil || lease.Err() != nil && !lease.Committed()
	lost := r.giveBack(ctx, lease, r.ordering.stays(ctx, failed, err))
	if errors.Is(lost, locking.ErrLost) && !lease.Committed() {
		err = errors.Join(err, lost)
	}
	return err
}

// expiredUntouched reports whether the lease could not be renewed in time, but no other owner has had its keys until
// now: then exclusion has held for the whole run. Redis has mostly stood still, so the question is repeated for up to
// 5 s.
func (r *run) expiredUntouched(ctx context.Context, lease *locking.Lease) bool {
	loss, ok := errors.AsType[*locking.LostError](lease.Err())
	if !ok || loss.Reason != locking.LossExpired || lease.Committed() {
		return false
	}
	untouched, err := parking.Retry(ctx, r.Stopping, func(ctx context.Context) (bool, error) {
		return lockhook.Untouched(ctx, lease)
	})
	return err == nil && untouched
}
