package middleware_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// The acknowledgement that releases the key takes long, before its script runs or after it, and meanwhile a task parks on
// the key: it is woken all the same.
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
				r.serve(opts, asynq.Config{Concurrency: 4}, func(context.Context, *asynq.Task) error {
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
				second := <-began
				if waited := second.Sub(first); waited > 3*time.Second {
					r.Errorf("the second task began %v after the first", waited)
				}
			})
		})
	}
}
