package e2e_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

func TestAFailoverInTheMiddleDoesEachTaskOnceAndStrandsNobody(t *testing.T) {
	t.Parallel()
	const orders, each = 5, 40
	for _, last := range []bool{false, true} {
		// A lease that is lost on the last attempt archives its task: it must outlast the failover.
		ttl := map[bool]time.Duration{false: 2 * time.Second, true: 20 * time.Second}[last]
		t.Run(map[bool]string{false: "parked", true: "parked on their last attempt"}[last], func(t *testing.T) {
			t.Parallel()
			sentinel := redistest.StartSentinel(t)
			admit(t, sentinel.Master(), sentinel.Replica())
			share(t, sentinel.Client(t))
			client, db := named(t, sentinel.Client(t)), redistest.Start(t).Client(t)
			// One handler holds its order while the failover goes on, so that those who wait for it are parked all the time.
			var first sync.Once
			holding, over := make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { close(over) })
			w, producer := newWorker(t, worker.Config{
				Redis:   inNamespace(worker.Redis{Master: sentinel.MasterName(), Sentinels: sentinel.Addrs()}),
				Queues:  map[string]int{"audit": 1, "allocate": 1},
				LockTTL: ttl,
				// A run that the failover broke off counts as failed.
				RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
			}, func(ctx context.Context, o order) error {
				if o.Order == "order:0" {
					first.Do(func() {
						close(holding)
						<-over
					})
				}
				return effect(ctx, db, o, false)
			})
			t.Cleanup(release) // before the worker ends
			// No retry, or enough for runs that the failover breaks off.
			retries := asynq.MaxRetry(map[bool]int{true: 0, false: 20}[last])
			enqueue(t, producer, "audit", orders, each, retries)
			enqueue(t, producer, "allocate", orders, each, retries)
			const total = 2 * orders * each
			const waitingIn = "asynq:{audit}:retry"
			if err := w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}

			receive(t, "an order is held", holding)
			until(t, "some are done and some wait", func() bool {
				return db.HLen(t.Context(), "effects").Val() >= total/8 && client.ZCard(t.Context(), waitingIn).Val() >= each/2
			})
			sentinel.Failover(t)
			done, waiting := db.HLen(t.Context(), "effects").Val(), named(t, sentinel.Master().Client(t)).ZCard(t.Context(), waitingIn).Val()
			if waiting < each/4 {
				t.Errorf("%d tasks of a queue wait after the failover, want at least %d", waiting, each/4)
			}
			release()
			t.Logf("after the failover %d of %d tasks are done, %d of a queue wait", done, total, waiting)
			checkEffects(t, db, total)
			drained(t, client, "audit", "allocate")
			nothingRemains(t, client)
		})
	}
}

// TestScriptsThatAFailoverHasForgottenAreSentAnewAndParkingAndWakingGoOn: a replica has the data of its master, but not its scripts.
func TestScriptsThatAFailoverHasForgottenAreSentAnewAndParkingAndWakingGoOn(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	admit(t, sentinel.Master(), sentinel.Replica())
	share(t, sentinel.Client(t))
	client := named(t, sentinel.Client(t))
	ran := make(chan string, 1)
	woke := make(chan string, 10)
	w, producer := newWorker(t, worker.Config{
		Redis: inNamespace(worker.Redis{Master: sentinel.MasterName(), Sentinels: sentinel.Addrs()}),
		// No timer brings a task back within this test: it is woken, or it stays.
		Strategy: middleware.Requeue{Delay: time.Hour},
		Observer: func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.Woke {
				woke <- e.Next.ID
			}
		},
	}, func(_ context.Context, o order) error {
		ran <- o.Task
		return nil
	})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	locker, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}

	// round lets a task with the given retries wait for a key. Another one, that comes when the key is free, takes it and wakes it.
	round := func(name string, retries int) {
		t.Helper()
		lease, err := locker.Acquire(t.Context(), []string{name}, locking.Options{})
		if err != nil {
			t.Fatal(err)
		}
		info, err := producer.Enqueue(t.Context(), "work", order{Order: name, Task: name + "/waits"}, asynq.MaxRetry(retries))
		if err != nil {
			t.Fatal(err)
		}
		until(t, "the task waits", func() bool { return client.ZScore(t.Context(), "asynq:{default}:retry", info.ID).Err() == nil })
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := producer.Enqueue(t.Context(), "work", order{Order: name, Task: name + "/comes"}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{name + "/comes", name + "/waits"} {
			if got := receive(t, want, ran); got != want {
				t.Fatalf("%s ran, want %s", got, want)
			}
		}
		if got := receive(t, "the wake", woke); got != info.ID {
			t.Errorf("task %s was woken, want %s", got, info.ID)
		}
	}
	round("before", 5)
	round("before/last", 0)

	next := sentinel.Replica()
	if n := cachedScripts(t, next); n != 0 {
		t.Fatalf("the replica knows %d scripts: this shows nothing", n)
	}
	if n := cachedScripts(t, sentinel.Master()); n == 0 {
		t.Fatal("the master knows no scripts: this shows nothing")
	}
	sentinel.Failover(t)
	round("after", 5)
	round("after/last", 0)
	errorsOf, err := next.Client(t).InfoMap(t.Context(), "errorstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	if errorsOf["Errorstats"]["errorstat_NOSCRIPT"] == "" {
		t.Error("the new master has never said NOSCRIPT: this shows nothing")
	}
	nothingRemains(t, client)
}

// receive waits for what a channel brings.
func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(limit):
		t.Fatalf("%s: not within %v", what, limit)
		panic("unreachable")
	}
}

// cachedScripts returns how many scripts a server knows.
func cachedScripts(t *testing.T, server *redistest.Server) int {
	t.Helper()
	info, err := server.Client(t).InfoMap(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(info["Memory"]["number_of_cached_scripts"])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
