package tasks

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/locks"
	"github.com/railtoken/railtoken/bench/internal/workers"
)

// pause is the mean time between two attempts of [SleepRetry], jittered by half.
const pause = 50 * time.Millisecond

// Bare is asynq without any lock, with as many slots as there are keys: the ideal of one task at a time for each key.
// Tasks of one key do overlap.
var Bare = Contestant{Name: "bare", start: func(_ context.Context, job Job) (func() error, error) {
	return startAsynq(job, asynq.Config{Concurrency: job.Scenario.Bare}, workers.Stock, nil)
}}

// What people write themselves: the handler takes a lock.
var (
	// SleepRetry tries to lock by SET NX PX. When it is refused it sleeps in its slot and tries again.
	SleepRetry = byHand("sleep-retry", false, isFailure, sleepRetry)
	// SleepRedsync sleeps in its slot by the retries of redsync's mutex. When these are used up the task is retried
	// after a second, which asynq does not count as a failure.
	SleepRedsync = byHand("redsync", false, isFailure, locks.Mutex)
	// Retry tries to lock by SET NX PX. When it is refused, asynq counts a failure and retries the task after a second,
	// as often as it may be retried.
	Retry = byHand("asynq retry", true, nil, locks.SetNX)
	// RetryUncounted is the same, but asynq does not count a failure.
	RetryUncounted = byHand("asynq retry, IsFailure=false", true, isFailure, locks.SetNX)
)

// byHand is an asynq server whose handler takes the lock.
func byHand(name string, timed bool, isFailure func(error) bool, lock func(*redis.Client) locks.Lock) Contestant {
	return Contestant{Name: name, Timed: timed, start: func(_ context.Context, job Job) (func() error, error) {
		return startAsynq(job, asynq.Config{Concurrency: job.Scenario.slots(), IsFailure: isFailure}, workers.Stock, lock)
	}}
}

// isFailure tells asynq that a task in conflict has not failed.
func isFailure(err error) bool {
	_, taken := errors.AsType[*redsync.ErrTaken](err)
	return !taken && !errors.Is(err, redsync.ErrFailed) && !errors.Is(err, locks.ErrTaken)
}

func sleepRetry(client *redis.Client) locks.Lock {
	try := locks.SetNX(client)
	return func(ctx context.Context, key string, hold func()) error {
		for {
			err := try(ctx, key, hold)
			if !errors.Is(err, locks.ErrTaken) {
				return err
			}
			select {
			case <-time.After(pause/2 + rand.N(pause)):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}
