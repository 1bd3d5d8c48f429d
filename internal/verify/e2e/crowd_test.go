package e2e_test

import (
	"context"
	"flag"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// crowdTasks is how many tasks wait for the one key: "make crowd" has 100 000, ten times as many as asynq keeps in an archive.
var crowdTasks = flag.Int("crowd", 1500, "`number` of tasks that wait for one key")

// crowdIdle bounds the time in which nothing happens: nobody waits for a timer while the key is free.
const crowdIdle = 20 * time.Second

// With all defaults, every task that finds its key held runs once after the release, and none is archived, however many they are.
func TestACrowdOnOneHeldKeyRunsToTheLast(t *testing.T) {
	t.Parallel()
	server := startShared(t)
	client := named(t, server.Client(t))
	tasks := *crowdTasks
	held, release := make(chan struct{}), make(chan struct{})
	ran := make([]atomic.Int32, tasks+1)
	var parked, done, refused atomic.Int64
	cfg := worker.Config{
		Redis: at(server),
		Observer: func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.Refused {
				refused.Add(1)
			}
			if e.Kind == middleware.Ended {
				parked.Add(1)
			}
		},
	}
	w, producer := newWorker(t, cfg, func(_ context.Context, o order) error {
		n, err := strconv.Atoi(o.Task)
		if err != nil {
			return err
		}
		if n == 0 && ran[0].Load() == 0 {
			close(held)
			<-release
		}
		ran[n].Add(1)
		done.Add(1)
		return nil
	})
	enqueue := func(n int) error {
		_, err := producer.Enqueue(t.Context(), "work", order{Order: "order:1", Task: strconv.Itoa(n)}, asynq.Timeout(time.Hour))
		return err
	}
	if err := enqueue(0); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-held

	began := time.Now()
	const producers = 8
	failed := make([]error, producers)
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			for n := 1 + p; n <= tasks && failed[p] == nil; n += producers {
				failed[p] = enqueue(n)
			}
		})
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			t.Fatal(err)
		}
	}
	progress(t, &parked, func() bool { return client.ZCard(t.Context(), "asynq:{default}:retry").Val() >= int64(tasks) })
	t.Logf("%d tasks were parked in %v, refused %d times", tasks, time.Since(began).Round(time.Millisecond), refused.Load())

	began = time.Now()
	close(release)
	progress(t, &done, func() bool { return done.Load() > int64(tasks) })
	t.Logf("they ran in %v, and were refused %d times in all", time.Since(began).Round(time.Millisecond), refused.Load())
	if err := w.Shutdown(); err != nil {
		t.Fatal(err)
	}
	for n := range ran {
		if times := ran[n].Load(); times != 1 {
			t.Errorf("task %d ran %d times", n, times)
		}
	}
	for _, set := range []string{"archived", "retry", "scheduled", "active"} {
		if left := client.Exists(t.Context(), "asynq:{default}:"+set).Val(); left > 0 {
			t.Errorf("tasks are left in asynq's %s", set)
		}
	}
	if left := client.Exists(t.Context(), "railtoken:parked", "railtoken:waiters:{order:1}").Val(); left > 0 {
		t.Error("tasks that have run still count as parked")
	}
}

// progress waits until something is so, for as long as a count goes on rising.
func progress(t *testing.T, count *atomic.Int64, so func() bool) {
	t.Helper()
	last, rose := count.Load(), time.Now()
	for !so() {
		<-time.After(20 * time.Millisecond)
		if now := count.Load(); now > last {
			last, rose = now, time.Now()
		} else if time.Since(rose) > crowdIdle {
			t.Fatalf("nothing has happened for %v, after %d", crowdIdle, last)
		}
	}
}
