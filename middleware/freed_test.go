package middleware_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// The lock of a lease of this process is gone, and the process has not missed it yet: it refuses the key, while Redis
// calls it free.
func TestALockThatIsGoneMakesNoHotLoop(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]middleware.Order{"best effort": middleware.BestEffort, "FIFO": middleware.FIFO} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const lock, most = "railtoken:lock:{order:1}", 3
				gate := locking.NewGate(r.locker, locking.GateOptions{})
				if _, err := gate.Acquire(r.Context(), []string{"order:1"}, locking.Options{}); err != nil {
					r.Fatal(err)
				}
				if n := r.client.Del(r.Context(), lock).Val(); n != 1 {
					r.Fatal("there was no lock")
				}
				var refused atomic.Int32
				r.events.during = func(ctx context.Context, e middleware.Event) {
					if e.Kind == middleware.Ended && refused.Add(1) == 100 { // no time would pass in a loop
						r.client.Set(ctx, lock, "another program", time.Minute)
					}
				}
				ran := make(chan time.Time, 1)
				opts := r.options(middleware.Requeue{Order: order})
				opts.Locker = gate
				r.serve(opts, asynq.Config{TaskCheckInterval: lookSeldom}, func(context.Context, *asynq.Task) error {
					ran <- time.Now()
					return nil
				})
				began := time.Now()
				r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
				took := receive(r.T, ran).Sub(began)
				if n := refused.Load(); n > most || took > 35*time.Second {
					r.Errorf("the task was refused %d times and ran after %v, want %d at most, and a second after the lease would have ended", n, took, most)
				}
			})
		})
	}
}
