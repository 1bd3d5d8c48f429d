package middleware_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/middleware"
)

// slowRecoverer delays what asynq's recoverer does with each task that it has found.
type slowRecoverer time.Duration

func (slowRecoverer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s slowRecoverer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		_, ours := ctx.Deadline() // asynq's recoverer has none
		if !ours && slices.ContainsFunc(cmd.Args(), func(arg any) bool {
			message, _ := arg.([]byte)
			return bytes.Contains(message, []byte(asynq.ErrLeaseExpired.Error()))
		}) {
			<-time.After(time.Duration(s))
		}
		return next(ctx, cmd)
	}
}

func (slowRecoverer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A recoverer that has listed a task acts on it also when it was brought back and runs by then.
func TestALostTaskOfTheRecovererIsNotBroughtBack(t *testing.T) {
	t.Parallel()
	const lease = 30 * time.Second
	for _, ago := range []time.Duration{26 * time.Second, line.LeftAfter - time.Second, line.LeftAfter, 29 * time.Second, 30 * time.Second, 31 * time.Second} {
		for _, retries := range []int{0, 3} {
			t.Run(fmt.Sprint(ago, ", ", retries, " retries"), func(t *testing.T) {
				t.Parallel()
				bubble(t, func(r *rig) {
					r.queued("order:1", 1, 1, asynq.MaxRetry(retries), asynq.Retention(time.Hour))
					head := r.crash("default", "order:1", true)
					r.queued("order:1", 2, 2, asynq.MaxRetry(3))
					<-time.After(lease + ago)
					r.client.AddHook(slowRecoverer(2 * time.Second))
					s := &script{steps: func(context.Context, int, int) error {
						<-time.After(5 * time.Second)
						return nil
					}}
					r.serve(r.options(middleware.Requeue{Order: middleware.FIFO}), asynq.Config{
						Concurrency: 4, TaskCheckInterval: lookSeldom,
						RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
					}, s.handle)
					want, state := []int{1, 2, 3}, asynq.TaskStateCompleted
					if retries == 0 {
						want, state = []int{2, 3}, asynq.TaskStateArchived
					}
					s.sees(r, 95*time.Second, want...)
					if info := r.settled(head, state); info.Retried != min(retries, 1) {
						r.Errorf("asynq counts %d retries", info.Retried)
					}
					<-time.After(75 * time.Second) // a second run would come by now: the recoverer looks each minute
					if got := s.saw(); !slices.Equal(got, want) {
						r.Errorf("%v ran, want %v", got, want)
					}
				})
			})
		}
	}
}
