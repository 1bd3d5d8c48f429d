package middleware_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/middleware"
)

// The head fails for longer than the bound on age; those behind it are not archived for that.
func TestAFirstTaskThatFailsTooLongEndsNoOther(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		s := &script{steps: func(_ context.Context, n, _ int) error {
			if n == 1 {
				return errors.New("it failed")
			}
			<-time.After(100 * time.Millisecond)
			return nil
		}}
		strategy := middleware.Requeue{Order: middleware.StrictFIFO, Limits: delayqueue.Limits{Age: 4 * time.Minute}}
		retries := func(n int, _ error, _ *asynq.Task) time.Duration { return time.Duration(1<<n) * 20 * time.Second }
		r.serve(r.options(strategy), asynq.Config{Concurrency: 4, RetryDelayFunc: retries, TaskCheckInterval: lookSeldom}, s.handle)
		r.queued("order:1", 1, 20, asynq.MaxRetry(25))
		<-time.After(7 * time.Minute)
		if info, err := r.inspect.GetQueueInfo("default"); err != nil || info.Archived > 0 {
			r.Errorf("%d archived, %v", info.Archived, err)
		}
		done := map[int]bool{}
		for _, n := range s.saw() {
			done[n] = true
		}
		if len(done) != 20 {
			r.Errorf("%d of 20 tasks have run: %v", len(done), s.saw())
		}
	})
}
