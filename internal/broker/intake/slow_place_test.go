package intake

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// slowness is how long calls take.
type slowness time.Duration

func (slowness) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s slowness) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Duration(s))
		return next(ctx, cmd)
	}
}

func (slowness) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Places that do not answer for a while keep no slots from the others. What they bring in the end gets slots that are free then.
func TestAPlaceThatIsSlowKeepsNoSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, admin := redistest.Virtual(t)
		client := redistest.Patient(t, m)
		client.AddHook(slowness(callTimeout * 3 / 4))
		l, err := lanes.New(16)
		if err != nil {
			t.Fatal(err)
		}
		const slots = 4
		in := New(struct{ redis.UniversalClient }{client}, Options{Queues: map[string]int{"orders": 1}, Slots: slots, Lanes: l})
		for lane := range 2 {
			queue := l.Queue("orders", lane)
			admin.HSet(t.Context(), asynqwire.Hash(queue, "a"), "msg", "a", "state", "pending")
			admin.LPush(t.Context(), asynqwire.Pending(queue), "a")
			in.Hear(queue)
		}
		fetched := make(chan error)
		go func() {
			_, err := in.Fetch(t.Context(), "orders")
			fetched <- err
		}()
		synctest.Wait()
		if n := in.slots.free(); n != 0 {
			t.Fatalf("%d of %d slots are free while two places are asked", n, slots)
		}
		time.Sleep(HoldMost)
		synctest.Wait()
		if n := in.slots.free(); n != slots {
			t.Errorf("%d of %d slots are free while nobody answers", n, slots)
		}
		if err := <-fetched; err != nil {
			t.Fatal(err)
		}
		if n := len(in.slots.ready); n != 2 || in.slots.asked != 0 {
			t.Errorf("%d tasks are in memory, and %d are asked for", n, in.slots.asked)
		}
		for range 2 {
			in.Take()
		}
		in.Drain(t.Context())
	})
}
