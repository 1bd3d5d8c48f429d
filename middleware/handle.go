package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/locking"
)

// handle runs the handler under the lease and releases the keys when it returns.
func (r *run) handle(ctx context.Context, lease *locking.Lease, next asynq.Handler) error {
	r.observeAcquired(ctx)
	r.began = time.Now()
	r.list(lease, false)
	r.active.Took(r.keys, false)
	err := next.ProcessTask(locking.NewContext(lease.Context(ctx), lease), r.task)
	if err == nil && ctx.Err() == nil {
		locks.Forgive(ctx, r.Stopping, lease)
	}
	failed := err != nil || ctx.Err() != nil || lease.Err() != nil && !lease.Committed()
	lost := r.giveBack(ctx, lease, r.seq.stays(ctx, failed, err))
	if errors.Is(lost, locking.ErrLost) && !lease.Committed() {
		err = errors.Join(err, lost)
	}
	return err
}
