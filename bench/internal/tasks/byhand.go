package tasks

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	mathrand "math/rand/v2"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// pause is the mean time between two attempts of [SleepRetry], jittered by half, and retryDelay that of the ones that leave
// waiting to asynq.
const (
	pause      = 50 * time.Millisecond
	retryDelay = time.Second
)

// SleepRetry is a lock written by hand: a handler that is refused sleeps in its slot and tries again.
var SleepRetry = Contestant{
	Name: "sleep-retry", Title: "SET NX PX in the handler; refused: sleep 25-75 ms in the slot and try again", Locks: true, ByHand: true,
	Start: func(_ context.Context, job Job) (func() error, error) {
		cfg := asynq.Config{Concurrency: Slots, TaskCheckInterval: checkInterval}
		return startAsynq(job, cfg, func(ctx context.Context, client *redis.Client, p payload) error {
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
		})
	},
}

// RetryUncounted returns an error in conflict that asynq does not count as a failure: the task is retried after a second.
var RetryUncounted = Contestant{
	Name: "asynq retry, IsFailure=false", Title: "SET NX PX in the handler; refused: an error that is no failure, retried after 1 s",
	Locks: true, ByHand: true, Timed: true,
	Start: func(_ context.Context, job Job) (func() error, error) {
		return startRetry(job, isFailure)
	},
}

// Retry returns an error in conflict: asynq counts a failure and retries the task after a second, as often as it may be retried.
var Retry = Contestant{
	Name: "asynq retry", Title: "SET NX PX in the handler; refused: a counted failure, retried after 1 s",
	Locks: true, ByHand: true, Timed: true,
	Start: func(_ context.Context, job Job) (func() error, error) { return startRetry(job, nil) },
}

func startRetry(job Job, isFailure func(error) bool) (func() error, error) {
	return startAsynq(job, retryConfig(isFailure), func(ctx context.Context, client *redis.Client, p payload) error {
		return withLock(ctx, client, p.Key, func() error { return job.Tally.Work(ctx, p.N) })
	})
}

// isFailure tells asynq that a task in conflict has not failed.
func isFailure(err error) bool { return !errors.Is(err, errRefused) }

// retryConfig is that of a server whose tasks in conflict are retried by asynq.
func retryConfig(isFailure func(error) bool) asynq.Config {
	return asynq.Config{
		Concurrency: Slots, TaskCheckInterval: checkInterval, IsFailure: isFailure,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return retryDelay },
	}
}

// errRefused reports that another task has the key.
var errRefused = errors.New("another task has the key")

//go:embed lua/release.lua
var releaseSource string

var release = redis.NewScript(releaseSource)

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
