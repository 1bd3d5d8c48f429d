package intake

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// ofTwo returns an Intake with two slots, and its client.
func ofTwo(t *testing.T, stopping <-chan struct{}) (*Intake, *redis.Client) {
	t.Helper()
	client := redistest.Start(t).Client(t)
	return New(client, Options{Queues: map[string]int{"default": 1}, Slots: 2, Stopping: stopping}), client
}

func TestAServerThatStopsTakesOneTaskForEachFetch(t *testing.T) {
	t.Parallel()
	stopping := make(chan struct{})
	close(stopping)
	in, client := ofTwo(t, stopping)
	for i := range 2 {
		id := fmt.Sprint(i)
		client.HSet(t.Context(), "asynq:{default}:t:"+id, "msg", "m", "state", "pending")
		client.LPush(t.Context(), "asynq:{default}:pending", id)
	}
	for want := range int64(2) {
		if n := client.LLen(t.Context(), "asynq:{default}:active").Val(); n != want {
			t.Errorf("%d tasks after %d fetches", n, want)
		}
		if _, err := in.Fetch(t.Context(), "default"); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	if n := client.LLen(t.Context(), "asynq:{default}:active").Val(); n != 2 {
		t.Errorf("%d tasks in the end", n)
	}
}

func TestATaskIsDeliveredWhileAsynqTakesTasks(t *testing.T) {
	t.Parallel()
	stopping := make(chan struct{})
	in, _ := ofTwo(t, stopping)
	deliver := func() bool { return in.deliver(Task{Queue: "default", ID: "1"}, time.Now()) }
	if !deliver() {
		t.Error("a task is not taken")
	}
	close(stopping)
	if deliver() {
		t.Error("a server that stops takes a task")
	}
	drained, _ := ofTwo(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	drained.Drain(ctx)
	if ctx.Err() != nil {
		t.Error("an Intake without calls is not drained")
	}
	if drained.deliver(Task{Queue: "default", ID: "1"}, time.Now()) {
		t.Error("a task comes after the Drain")
	}
}

func TestARunTellsItsWorkerIfThereIsOne(t *testing.T) {
	t.Parallel()
	const worker = "abcdefgh"
	for name, tells := range map[string]bool{"": false, worker: true} {
		in := &Intake{worker: func() string { return name }}
		if got := in.name(); strings.Contains(got, worker) != tells || got == "" || got == in.name() {
			t.Errorf("with the worker %q, a fetch is called %q", name, got)
		}
	}
	if got := (&Intake{}).name(); got == "" {
		t.Error("a fetch without a worker has no name")
	}
}
