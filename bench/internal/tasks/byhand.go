package tasks

import (
	"context"
	_ "embed"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/workers"
)

// pause is the mean time between two attempts of [SleepRetry], jittered by half.
const pause = 50 * time.Millisecond

// Bare is asynq without any lock, with as many slots as there are keys: the ideal of one task at a time for each key.
// Tasks of one key do overlap.
var Bare = Contestant{Name: "bare", start: func(_ context.Context, job Job) (func() error, error) {
	return startAsynq(job, asynq.Config{
		Queues: job.Scenario.weights(), Concurrency: job.Scenario.Bare, TaskCheckInterval: checkInterval,
	}, workers.Stock, nil)
}}

// What people write themselves: the handler takes a lock.
var (
	// SleepRetry tries to lock by SET NX PX. When it is refused it sleeps in its slot and tries again.
	SleepRetry = byHand("sleep-retry", false, isFailure, sleepRetry)
	// SleepRedsync sleeps in its slot by the retries of redsync's mutex. When these are used up the task is retried
	// after a second, which asynq does not count as a failure.
	SleepRedsync = byHand("redsync", false, isFailure, sleepRedsync)
	// Semaphore follows the rate limiter in asynq's documentation: a semaphore with one token for each key, in a sorted
	// set, whose tokens expire with their tasks' deadlines. When it gets none, its error is no failure and asynq retries
	// the task after a second. x/rate itself panics with this version of asynq.
	Semaphore = byHand("semaphore", true, isFailure, semaphore)
	// Retry tries to lock by SET NX PX. When it is refused, asynq counts a failure and retries the task after a second,
	// as often as it may be retried.
	Retry = byHand("asynq retry", true, nil, contestant.SetNX)
)

// byHand is an asynq server whose handler takes the lock.
func byHand(name string, timed bool, isFailure func(error) bool, lock func(*redis.Client) contestant.Lock) Contestant {
	return Contestant{Name: name, Locks: true, Timed: timed, start: func(_ context.Context, job Job) (func() error, error) {
		return startAsynq(job, asynq.Config{
			Queues: job.Scenario.weights(), Concurrency: Slots, TaskCheckInterval: checkInterval, IsFailure: isFailure,
		}, workers.Stock, lock)
	}}
}

// isFailure tells asynq that a task in conflict has not failed.
func isFailure(err error) bool { return !errors.Is(err, contestant.ErrTaken) }

func sleepRetry(client *redis.Client) contestant.Lock {
	try := contestant.SetNX(client)
	return func(ctx context.Context, key string, hold func()) error {
		for {
			err := try(ctx, key, hold)
			if !errors.Is(err, contestant.ErrTaken) {
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

func sleepRedsync(client *redis.Client) contestant.Lock {
	wait := contestant.Mutex([]*redis.Client{client}).Wait
	return func(ctx context.Context, key string, hold func()) error {
		err := wait(ctx, key, hold)
		_, taken := errors.AsType[*redsync.ErrTaken](err)
		switch {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case taken || errors.Is(err, redsync.ErrFailed):
			return contestant.ErrTaken
		default:
			return err
		}
	}
}

//go:embed lua/token.lua
var tokenSource string

var takeToken = redis.NewScript(tokenSource)

func semaphore(client *redis.Client) contestant.Lock {
	return func(ctx context.Context, key string, hold func()) error {
		until, hasDeadline := ctx.Deadline()
		id, hasID := asynq.GetTaskID(ctx)
		if !hasDeadline || !hasID {
			return errors.New("a token needs the task's deadline and ID")
		}
		taken, err := takeToken.Run(ctx, client, []string{key}, 1, time.Now().Unix(), until.Unix(), id).Bool()
		if err != nil {
			return err
		}
		if !taken {
			return contestant.ErrTaken
		}
		hold()
		return client.ZRem(context.WithoutCancel(ctx), key, id).Err()
	}
}
