package intake_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// freeing takes all tasks, and tells of the keys that somebody else waits for when they are released.
type freeing struct{ freed chan []string }

func (*freeing) Lock(all []intake.Task, _ func(intake.Task)) []intake.Task { return all }
func (*freeing) Fetched(intake.Task)                                       {}
func (*freeing) Park(intake.Task, func(), func() bool) bool                { return false }

func (f *freeing) Left(t intake.Task) *colocated.Release {
	return t.Taken.Release(func(keys []string) { f.freed <- keys })
}

// A task goes back whose key somebody waits for. Who waits hears of it, and so do the servers of its lane.
func TestATaskThatGoesBackIsAnnounced(t *testing.T) {
	t.Parallel()
	const queue = "orders@17-xyz" // as one in a lane is called
	client := redistest.Start(t).Client(t)
	single, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = single.Close() })
	enqueue(t, client, queue, 1)
	ctx := t.Context()
	client.HSet(ctx, "asynq:{"+queue+"}:t:"+queue+"0", "railtoken:keys", "hot")
	heard := client.Subscribe(ctx, "railtoken:ready:17")
	t.Cleanup(func() { _ = heard.Close() })
	if _, err := heard.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	var types colocated.Types
	types.Learn("test", time.Minute, colocated.Wait{})
	tasks := &freeing{make(chan []string, 1)}
	in := intake.New(client, intake.Options{
		Queues: map[string]int{queue: 1}, Slots: 1, Locks: locks.Colocated(single), Types: &types, Tasks: tasks,
	})
	if _, err := in.Fetch(ctx, queue); err != nil {
		t.Fatal(err)
	}
	client.Set(ctx, "railtoken:lock:{hot}:notify", "1", time.Minute)
	in.Drain(context.WithoutCancel(ctx))
	if keys := redistest.Receive(t, tasks.freed, patience); strings.Join(keys, " ") != "hot" {
		t.Errorf("freed are %v", keys)
	}
	if m := redistest.Receive(t, heard.Channel(), patience); m.Payload != queue {
		t.Errorf("the servers of the lane hear %q", m.Payload)
	}
	if n := client.Exists(ctx, "railtoken:lock:{hot}").Val(); n != 0 {
		t.Error("the key is still held")
	}
}
