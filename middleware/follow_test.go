package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
)

// Many processes have given a key back, each with a wake to look after, and then it is held for long. Those who wait
// are not run again and again for it: each such run is a conflict that counts.
func TestLookingAfterWakesMakesNoConflictsWhileAKeyIsHeld(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		const processes, waiters, hold = 10, 5, 5 * time.Minute
		r.serve(r.options(never), asynq.Config{Concurrency: 4, TaskCheckInterval: lookSeldom}, func(ctx context.Context, _ *asynq.Task) error {
			<-ctx.Done() // a task that is woken at the very end
			return nil
		})
		lease := r.hold("order:1")
		for range waiters {
			r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
		}
		r.events.await(r, waiters, parked)
		<-time.After(time.Second)
		for range processes { // each holds the key, wakes the next as it gives it back, and another one is quicker
			q, err := delayqueue.New(r.client, delayqueue.Options{})
			if err != nil {
				r.Fatal(err)
			}
			r.Cleanup(func() { _ = q.Close() })
			if _, err := q.Wake(r.Context(), "order:1", delayqueue.WakeOptions{}); err != nil {
				r.Fatal(err)
			}
			<-time.After(50 * time.Millisecond)
		}
		<-time.After(hold)
		conflicts := 0
		r.events.mu.Lock()
		for _, e := range r.events.all {
			if parked(e) {
				conflicts++
			}
		}
		r.events.mu.Unlock()
		r.Logf("%d conflicts", conflicts)
		if most := waiters + 2*processes; conflicts > most {
			r.Errorf("%d conflicts in %v, want %d at most", conflicts, hold, most)
		}
		r.giveBack(lease)
	})
}
