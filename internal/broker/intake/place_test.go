package intake_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// queueOn returns the name of a queue on node i of a cluster of that many nodes.
func queueOn(i, nodes int) string {
	for n := 0; ; n++ {
		queue := "queue" + strconv.Itoa(n)
		if rediswire.Slot(asynqwire.Pending(queue))*nodes/16384 == i {
			return queue
		}
	}
}

// The master of a queue does not answer. Its fetch is to be recalled, for as long as that takes; the other queue has all slots
// meanwhile, although the first one comes before it.
func TestAMasterThatIsAwayHoldsUpNoOtherQueue(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	client := c.Client(t, func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled, o.MaxRedirects = true, 1 })
	away, other := queueOn(0, 3), queueOn(1, 3)
	const slots = 4
	in := intake.New(client, intake.Options{Queues: map[string]int{away: 2, other: 1}, Strict: true, Slots: slots})
	t.Cleanup(func() { in.Drain(context.Background()) })
	enqueue(t, client, other, slots)
	if _, err := in.Fetch(t.Context(), away); err != nil {
		t.Fatal(err)
	}
	c.Nodes()[0].Pause()
	t.Cleanup(c.Nodes()[0].Resume)
	sent, lost := make(chan struct{}, 100), make(chan error, 1)
	client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		sent <- struct{}{}
		return next(ctx, cmd)
	}))
	go func() {
		_, err := in.Fetch(context.Background(), away)
		lost <- err
	}()
	redistest.Receive(t, sent, patience)
	if _, err := in.Fetch(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if _, ok := in.Take(); !ok {
		t.Fatal("the fetch of the other queue has brought no task")
	}
	select {
	case err := <-lost:
		t.Fatalf("the other queue has waited for the master that is away: %v", err)
	default:
	}
	if err := redistest.Receive(t, lost, patience); err == nil || errors.Is(err, redis.Nil) {
		t.Fatalf("the fetch from the master that is away: %v", err)
	}
	if _, err := in.Fetch(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < slots; n++ {
		if _, ok := in.Take(); !ok {
			t.Fatalf("the other queue has %d of %d slots", n, slots)
		}
	}
}

// With StrictPriority a task of the lower queue ends while one of the higher queue is pending. On a Cluster its acknowledgement reaches the
// lower queue alone, and leaves the slot to the other.
func TestAnAcknowledgementLeavesItsSlotToAHigherQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, admin := redistest.Virtual(t)
		in := intake.New(redistest.VirtualCluster(t, m), intake.Options{
			Queues: map[string]int{"high": 2, "low": 1}, Strict: true, Slots: 1,
		})
		enqueue(t, admin, "low", 2)
		if _, err := in.Fetch(t.Context(), "low"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"high", "low"} {
			last, ok := in.Take()
			if !ok {
				t.Fatalf("there is no task before that of %s", want)
			}
			if want == "high" {
				enqueue(t, admin, want, 1)
			}
			if _, err := in.Acknowledge(t.Context(), intake.Acknowledgement{
				Queue: last.Queue, ID: last.ID, Text: doneText,
				Keys: []string{asynqwire.Hash(last.Queue, last.ID), asynqwire.Active(last.Queue)}, Args: []any{last.ID},
			}); err != nil {
				t.Fatal(err)
			}
			if next, ok := in.Take(); ok {
				t.Fatalf("the acknowledgement of %s has brought %s", last.ID, next.ID)
			}
			if _, err := in.Fetch(t.Context(), want); err != nil {
				t.Fatal(err)
			}
		}
		if next, ok := in.Take(); !ok || next.Queue != "low" {
			t.Errorf("at the end comes %q", next.ID)
		}
	})
}

// The turn of a lane is over. Its task ends, and wakes none: its acknowledgement leaves the slot to the lane that waits.
func TestAnAcknowledgementLeavesItsSlotToTheNextTurn(t *testing.T) {
	t.Parallel()
	for _, lane := range []int{0, 3} { // the first one, too
		t.Run(strconv.Itoa(lane), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { leavesItsSlot(t, lane) })
		})
	}
}

func leavesItsSlot(t *testing.T, lane int) {
	t.Helper()
	m, admin := redistest.Virtual(t)
	l, err := lanes.New(16)
	if err != nil {
		t.Fatal(err)
	}
	in := intake.New(redistest.VirtualCluster(t, m), intake.Options{Queues: map[string]int{"orders": 1}, Slots: 1, Lanes: l})
	fetched := func() intake.Task {
		t.Helper()
		if _, err := in.Fetch(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		task, ok := in.Take()
		if !ok {
			t.Fatal("no task has come")
		}
		return task
	}
	here, other := l.Queue("orders", lane), l.Queue("orders", 7)
	enqueue(t, admin, here, 2)
	in.Hear(here)
	first := fetched()
	enqueue(t, admin, other, 1)
	in.Hear(other)
	time.Sleep(time.Second)
	if _, err := in.Acknowledge(t.Context(), intake.Acknowledgement{
		Queue: first.Queue, ID: first.ID, Text: doneText,
		Keys: []string{asynqwire.Hash(first.Queue, first.ID), asynqwire.Active(first.Queue)}, Args: []any{first.ID},
	}); err != nil {
		t.Fatal(err)
	}
	if next, ok := in.Take(); ok {
		t.Fatalf("the acknowledgement has brought %s", next.ID)
	}
	if next := fetched(); next.Queue != other {
		t.Errorf("then comes %s", next.ID)
	}
}
