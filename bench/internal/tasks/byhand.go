package tasks

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	mathrand "math/rand/v2"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/workers"
)

// pause is the mean time between two attempts of [SleepRetry], jittered by half, and retryDelay that of the ones that
// leave waiting to asynq.
const (
	pause      = 50 * time.Millisecond
	retryDelay = time.Second
)

// SleepRetry takes a lock by SET NX PX. When it is refused it sleeps in its slot and tries again.
var SleepRetry = byHand("sleep-retry", false, isFailure, sleepRetry)

func sleepRetry(ctx context.Context, job Job, client *redis.Client, p payload) error {
	for {
		err := withLock(ctx, client, p.Key, func() error { return job.Tally.Work(ctx, p.N) })
		if !errors.Is(err, errRefused) {
			return err
		}
		select {
		case <-time.After(pause/2 + mathrand.N(pause)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// SleepRedsync sleeps in its slot by the retries of redsync's mutex. When these are used up the task is retried after a
// second, which asynq does not count as a failure.
var SleepRedsync = byHand("redsync", false, isFailure, sleepRedsync)

func sleepRedsync(ctx context.Context, job Job, client *redis.Client, p payload) error {
	mutex := redsync.New(goredis.NewPool(client)).NewMutex("lock:"+p.Key, redsync.WithExpiry(LockTTL))
	err := mutex.LockContext(ctx)
	_, taken := errors.AsType[*redsync.ErrTaken](err)
	switch {
	case err == nil:
		err = job.Tally.Work(ctx, p.N)
		_, unlockErr := mutex.UnlockContext(context.WithoutCancel(ctx))
		return errors.Join(err, unlockErr)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case taken || errors.Is(err, redsync.ErrFailed):
		return errRefused
	default:
		return err
	}
}

// Semaphore follows the rate limiter in asynq's documentation: a semaphore with one token for each key, in a sorted
// set, whose tokens expire with their tasks' deadlines. When it gets none, its error is no failure and asynq retries
// the task after a second. x/rate itself panics with this version of asynq.
var Semaphore = byHand("semaphore", true, isFailure, withToken)

func withToken(ctx context.Context, job Job, client *redis.Client, p payload) error {
	until, hasDeadline := ctx.Deadline()
	id, hasID := asynq.GetTaskID(ctx)
	if !hasDeadline || !hasID {
		return errors.New("a token needs the task's deadline and ID")
	}
	key := "semaphore:" + p.Key
	taken, err := takeToken.Run(ctx, client, []string{key}, 1, time.Now().Unix(), until.Unix(), id).Bool()
	if err != nil {
		return err
	}
	if !taken {
		return errRefused
	}
	return errors.Join(job.Tally.Work(ctx, p.N), client.ZRem(context.WithoutCancel(ctx), key, id).Err())
}

// RetryUncounted takes a lock by SET NX PX. When it is refused, its error is no failure and asynq retries the task
// after a second.
var RetryUncounted = byHand("asynq retry, IsFailure=false", true, isFailure, tryOnce)

// Retry takes a lock by SET NX PX. When it is refused, asynq counts a failure and retries the task after a second, as
// often as it may be retried.
var Retry = byHand("asynq retry", true, nil, tryOnce)

func tryOnce(ctx context.Context, job Job, client *redis.Client, p payload) error {
	return withLock(ctx, client, p.Key, func() error { return job.Tally.Work(ctx, p.N) })
}

// byHand is an asynq server whose handler takes the lock.
func byHand(name string, timed bool, isFailure func(error) bool,
	handle func(context.Context, Job, *redis.Client, payload) error,
) Contestant {
	return Contestant{Name: name, Locks: true, Timed: timed, Start: func(_ context.Context, job Job) (func() error, error) {
		cfg := asynq.Config{
			Queues: job.Scenario.weights(), Concurrency: Slots, TaskCheckInterval: checkInterval,
			IsFailure:      isFailure,
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return cmp.Or(job.RetryDelay, retryDelay) },
		}
		return startAsynq(job, cfg, workers.Stock, func(ctx context.Context, client *redis.Client, p payload) error {
			return handle(ctx, job, client, p)
		})
	}}
}

// isFailure tells asynq that a task in conflict has not failed.
func isFailure(err error) bool { return !errors.Is(err, errRefused) }

// errRefused reports that another task has the key.
var errRefused = errors.New("another task has the key")

//go:embed lua/release.lua
var releaseSource string

//go:embed lua/token.lua
var tokenSource string

var (
	release   = redis.NewScript(releaseSource)
	takeToken = redis.NewScript(tokenSource)
)

// withLock does the work under the key's lock, or returns errRefused at once.
func withLock(ctx context.Context, client *redis.Client, key string, work func() error) error {
	owner := rand.Text()
	err := client.SetArgs(ctx, "lock:"+key, owner, redis.SetArgs{Mode: "NX", TTL: LockTTL}).Err()
	if errors.Is(err, redis.Nil) {
		return errRefused
	}
	if err != nil {
		return err
	}
	return errors.Join(work(), release.Run(context.WithoutCancel(ctx), client, []string{"lock:" + key}, owner).Err())
}
