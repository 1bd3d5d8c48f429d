package inspect_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/worker"
)

// A pause of a queue holds in all of its lanes, also in one that has its first task afterwards.
func TestAPauseIsOneOfAllLanes(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	at := worker.Redis{Cluster: cluster.Addrs(), Lanes: 16}
	w, err := worker.New(worker.Config{Redis: at, Queues: map[string]int{"orders": 1, "control": 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Shutdown() })
	ran := make(chan string, 10)
	err = worker.Handle(w, "work", worker.Handler[string]{
		Keys: func(key string) []string { return []string{key} },
		Run: func(_ context.Context, key string) error {
			ran <- key
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	producer, err := worker.NewClient(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = producer.Close() })
	run := func(queue, key string) {
		t.Helper()
		if _, err := producer.Enqueue(t.Context(), "work", key, asynq.Queue(queue), attach.Keys(key)); err != nil {
			t.Fatal(err)
		}
	}
	i, err := inspect.New(inspect.Options{Tasks: cluster.Client(t), Lanes: 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Close() })

	if _, err := i.Pause(t.Context(), "orders"); err == nil || !strings.Contains(err.Error(), "correct its name") {
		t.Errorf("a queue that never had a task: %v", err)
	}
	run("orders", "first")
	if got := redistest.Receive(t, ran, 30*time.Second); got != "first" {
		t.Fatal(got)
	}
	for _, want := range []bool{true, false} {
		if changed, err := i.Pause(t.Context(), "orders"); err != nil || changed != want {
			t.Errorf("pause: %v, %v, want %v", changed, err, want)
		}
	}
	keys := []string{"a", "b", "c", "d", "e", "f"} // in several lanes
	for _, key := range keys {
		run("orders", key)
	}
	for range 3 { // a server that takes tasks of orders has taken some before these
		run("control", "control")
		if got := redistest.Receive(t, ran, 30*time.Second); got != "control" {
			t.Fatalf("%s runs in a queue that is paused", got)
		}
	}
	if changed, err := i.Unpause(t.Context(), "orders"); err != nil || !changed {
		t.Errorf("unpause: %v, %v", changed, err)
	}
	for range keys {
		redistest.Receive(t, ran, 30*time.Second)
	}
	if changed, err := i.Unpause(t.Context(), "orders"); err != nil || changed {
		t.Errorf("a second time: %v, %v", changed, err)
	}
}
