package tasks

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// SleepRedsync sleeps in its slot by the retries of redsync's mutex. When these are used up the task is retried after a second, which
// asynq does not count as a failure.
var SleepRedsync = Contestant{
	Name: "redsync", Title: "redsync's mutex in the handler, with its own 32 tries 50-250 ms apart in the slot; then as IsFailure=false",
	Locks: true, ByHand: true,
	Start: func(_ context.Context, job Job) (func() error, error) {
		return startAsynq(job, retryConfig(isFailure), func(ctx context.Context, client *redis.Client, p payload) error {
			mutex := redsync.New(goredis.NewPool(client)).NewMutex("lock:"+p.Key, redsync.WithExpiry(LockTTL))
			if err := mutex.LockContext(ctx); err != nil {
				return refusedByMutex(ctx, err)
			}
			err := job.Tally.Work(ctx, p.N)
			_, unlockErr := mutex.UnlockContext(context.WithoutCancel(ctx))
			return errors.Join(err, unlockErr)
		})
	},
}

// refusedByMutex tells a key that another task has from other errors.
func refusedByMutex(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, taken := errors.AsType[*redsync.ErrTaken](err); taken || errors.Is(err, redsync.ErrFailed) {
		return errRefused
	}
	return err
}
