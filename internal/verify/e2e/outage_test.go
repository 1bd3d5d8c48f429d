package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/worker"
)

// lines counts what a logger writes.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) count() int { return l.of("\n") }

// of returns how often a text was written.
func (l *lines) of(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.buf.Bytes(), []byte(text))
}

func TestRedisGoesAwayAndComesBackAndNothingIsLost(t *testing.T) {
	t.Parallel()
	const orders, each = 20, 6
	// Everything is on disk before it is answered, as far as a Redis can: what is lost then is lost by us.
	server := startShared(t, "--appendonly", "yes", "--appendfsync", "always")
	db := redistest.Start(t).Client(t)
	log := &lines{}
	cfg := worker.Config{
		Redis: at(server), Queues: map[string]int{"audit": 1, "allocate": 1}, LockTTL: 2 * time.Second,
		Logger:          slog.New(slog.NewTextHandler(log, nil)),
		ShutdownTimeout: time.Second,
		// Of a task that it had fetched asynq thinks that its worker crashed, and would let it wait for 15 to 45 s more.
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
	}
	run := func(ctx context.Context, o order) error { return effect(ctx, db, o, false) }
	w, producer := newWorker(t, cfg, run)
	enqueue(t, producer, "audit", orders, each)
	enqueue(t, producer, "allocate", orders, each)
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	const total = 2 * orders * each
	for i := range 3 {
		until(t, "some effects", func() bool { return db.HLen(t.Context(), "effects").Val() >= int64(total*(i+1)/8) })
		server.Kill()
		before := log.count()
		<-time.After(1500 * time.Millisecond) // the outage lasts: nothing happens in it that could be awaited
		if n := log.count() - before; n > 500 {
			t.Errorf("%d lines of log in an outage of 1.5 s: something spins", n)
		}
		server.Restart(t)
	}
	client := named(t, server.Client(t))
	// The worker does all that is left, but for tasks that asynq had fetched when Redis died, and whose answer was lost.
	queues := []string{"audit", "allocate"}
	until(t, "nothing is left but tasks that are active", func() bool {
		left := db.HLen(t.Context(), "effects").Val()
		for _, queue := range queues {
			left += client.ZCard(t.Context(), "asynq:{"+queue+"}:lease").Val()
		}
		return left >= total && waitingIn(t, client, queues) == 0
	})
	// Those are in nobody's hands until asynq brings them back, one to two minutes later. Instead, their leases are aged.
	if err := w.Shutdown(); err != nil {
		t.Fatal(err)
	}
	ageLeases(t, client, queues)
	next, _ := newWorker(t, cfg, run)
	if err := next.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkEffects(t, db, total)
	drained(t, client, queues...)
}

// waitingIn returns how many tasks wait in asynq's queues, whatever for.
func waitingIn(t *testing.T, client redis.UniversalClient, queues []string) (n int64) {
	t.Helper()
	for _, queue := range queues {
		prefix := "asynq:{" + queue + "}:"
		n += client.LLen(t.Context(), prefix+"pending").Val()
		for _, set := range []string{"scheduled", "retry"} {
			n += client.ZCard(t.Context(), prefix+set).Val()
		}
	}
	return n
}

func TestAnOutageOfTheLocksArchivesNothing(t *testing.T) {
	t.Parallel()
	const tasks = 30
	server, locks := startShared(t), startShared(t)
	db := redistest.Start(t).Client(t)
	w, producer := newWorker(t, worker.Config{
		Redis: at(server), LockRedis: at(locks),
		Concurrency: 8, LockTTL: 2 * time.Second,
	}, func(ctx context.Context, o order) error { return effect(ctx, db, o, false) })
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	locks.Kill()
	enqueue(t, producer, "default", tasks/2, 1, asynq.MaxRetry(0)) // their first attempt is their last
	enqueue(t, producer, "default", tasks/2, 1)
	client := named(t, server.Client(t))
	// Longer than a task sits the outage out in its slot, also on its last attempt.
	last := map[bool]bool{}
	until(t, "tasks of both kinds give their slots up", func() bool {
		waiting, err := asynq.NewInspectorFromRedisClient(client).ListRetryTasks("default")
		if err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
			t.Fatal(err)
		}
		for _, info := range waiting {
			last[info.MaxRetry == 0] = true
			if info.Retried != 0 {
				t.Errorf("a task that has only waited was retried %d times", info.Retried)
			}
		}
		return len(last) == 2
	})
	if n := db.HLen(t.Context(), "effects").Val(); n != 0 {
		t.Errorf("%d handlers ran without a lock", n)
	}
	locks.Restart(t)
	checkEffects(t, db, tasks)
	drained(t, client, "default")
}
