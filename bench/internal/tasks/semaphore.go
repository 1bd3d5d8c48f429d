package tasks

import (
	"context"
	_ "embed"
	"errors"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Semaphore follows the rate limiter in asynq's documentation: a semaphore with one token for each key, in a sorted set, whose tokens
// expire with their tasks' deadlines. A task that gets none is refused by an error that is no failure and retried after a second.
var Semaphore = Contestant{
	Name: "semaphore", Title: "asynq's x/rate semaphore with one token for each key; refused: an error that is no failure, retried after 1 s",
	Locks: true, ByHand: true, Timed: true,
	Start: func(_ context.Context, job Job) (func() error, error) {
		return startAsynq(job, retryConfig(isFailure), func(ctx context.Context, client *redis.Client, p payload) error {
			return withToken(ctx, client, p, func() error { return job.Tally.Work(ctx, p.N) })
		})
	},
}

//go:embed lua/token.lua
var tokenSource string

var takeToken = redis.NewScript(tokenSource)

// withToken does the work with the key's token, or returns errRefused at once.
func withToken(ctx context.Context, client *redis.Client, p payload, work func() error) error {
	until, ok := ctx.Deadline()
	if !ok {
		return errors.New("a token needs the task's deadline")
	}
	id, ok := asynq.GetTaskID(ctx)
	if !ok {
		return errors.New("a token needs the task's ID")
	}
	key := "semaphore:" + p.Key
	taken, err := takeToken.Run(ctx, client, []string{key}, 1, time.Now().Unix(), strconv.FormatInt(until.Unix(), 10), id).Bool()
	if err != nil {
		return err
	}
	if !taken {
		return errRefused
	}
	return errors.Join(work(), client.ZRem(context.WithoutCancel(ctx), key, id).Err())
}
