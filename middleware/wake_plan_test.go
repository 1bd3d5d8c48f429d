package middleware_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// A release wakes no task while one waits for the key in its slot. If that task parks before the key is free, because the
// acknowledgement takes long, the release must wake it all the same.
func TestATaskThatParksDuringAReleaseIsWoken(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprintf("the script runs before the pause: %t", before), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				began, ended := make(chan time.Time, 2), make(chan struct{}, 2)
				r.client.(*redis.Client).AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error { //nolint:forcetypeassert // it is that of a bubble
					slow := false
					if slices.Contains(cmd.Args(), any("asynq:{default}:active")) && cmd.Name() == "evalsha" {
						select {
						case <-ended:
							slow = true
						default:
						}
					}
					if slow && !before {
						time.Sleep(time.Second)
					}
					err := next(ctx, cmd)
					if slow && before {
						time.Sleep(time.Second)
					}
					return err
				}))
				opts := r.options(middleware.Requeue{})
				opts.Locker = locking.NewGate(r.locker, locking.GateOptions{HandOffs: -1})
				r.serve(opts, asynq.Config{Concurrency: 4}, func(_ context.Context, task *asynq.Task) error {
					if !strings.Contains(string(task.Payload()), "order:1") { // it takes a slot, so that none is free for standby
						time.Sleep(10 * time.Second)
						return nil
					}
					began <- time.Now()
					time.Sleep(100 * time.Millisecond)
					select {
					case ended <- struct{}{}:
					default:
					}
					return nil
				})
				r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
				first := <-began
				r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
				r.events.await(r, 1, func(e middleware.Event) bool { return e.Kind == middleware.Refused })
				for i := range 2 {
					r.enqueue(payload{Key: fmt.Sprint("own:", i)}, asynq.MaxRetry(3))
				}
				second := <-began
				if waited := second.Sub(first); waited > 3*time.Second {
					r.Errorf("the second task began %v after the first", waited)
				}
			})
		})
	}
}
