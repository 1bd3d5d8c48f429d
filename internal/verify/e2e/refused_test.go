package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// TestAWakeThatRedisRefusesIsSentAgain: while a failover goes on, Redis refuses to write. Who gives a key back just then must neither leave
// the next in line to its timer, nor stay in line itself.
func TestAWakeThatRedisRefusesIsSentAgain(t *testing.T) {
	t.Parallel()
	server, locks := startShared(t), startShared(t)
	client, lockClient := named(t, server.Client(t)), named(t, locks.Client(t))
	ran := make(chan string, 1)
	w, producer := newWorker(t, worker.Config{
		Redis: at(server), LockRedis: at(locks),
		Strategy: middleware.Requeue{Delay: time.Hour}, // no timer brings a task back within this test
	}, func(ctx context.Context, o order) error {
		if o.Task == "first" { // from now on Redis refuses, as it has too few replicas
			if err := client.ConfigSet(ctx, "min-replicas-to-write", "1").Err(); err != nil {
				return err
			}
		}
		ran <- o.Task
		return nil
	})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	locker, err := locking.NewSingle(lockClient, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := locker.Acquire(t.Context(), []string{"k"}, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var first *asynq.TaskInfo
	for _, name := range []string{"first", "second"} {
		info, err := producer.Enqueue(t.Context(), "work", order{Order: "k", Task: name}, asynq.MaxRetry(5))
		if err != nil {
			t.Fatal(err)
		}
		until(t, name+" waits", func() bool { return client.ZScore(t.Context(), "asynq:{default}:retry", info.ID).Err() == nil })
		if first == nil {
			first = info
		}
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Run by hand, the first task is still among the waiters. On a busy machine the worker may have woken it already,
	// because it looks after each park whether the key has become free meanwhile. Then this test shows less.
	err = asynq.NewInspectorFromRedisClient(client).RunTask(first.Queue, first.ID)
	if err != nil {
		if !strings.Contains(err.Error(), "task is already") {
			t.Fatal(err)
		}
		t.Log("the worker was faster: ", err)
	}
	if got := receive(t, "the first task", ran); got != "first" {
		t.Fatalf("%s ran", got)
	}
	until(t, "the key is given back", func() bool { return lockClient.Exists(t.Context(), "railtoken:lock:{k}").Val() == 0 })
	<-time.After(500 * time.Millisecond) // the refusal lasts: nothing happens in it that could be awaited
	if err := client.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, "the second task", ran); got != "second" {
		t.Fatalf("%s ran", got)
	}
	drained(t, client, "default")
	nothingRemains(t, client)
	nothingRemains(t, lockClient)
}
