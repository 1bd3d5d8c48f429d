package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// supersedeVariable makes the tasks of the child supersede each other.
const supersedeVariable = "E2E_SUPERSEDE"

// supersede is how they do.
var supersede = middleware.Supersede{Grace: 2 * time.Second, Group: "orders"}

// handleSuperseding registers a handler that works for a while, unless it is superseded.
func handleSuperseding(w *worker.Worker, db *redis.Client) error {
	return worker.Handle(w, "work", worker.Handler[order]{
		Keys: func(o order) []string { return []string{o.Order} }, Strategy: supersede, Group: supersede.Group,
		Run: func(ctx context.Context, o order) error {
			timer := time.NewTimer(10 * time.Millisecond)
			defer timer.Stop()
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-timer.C:
				return effect(ctx, db, o, false)
			}
		},
	})
}

// Four producers enqueue tasks for one order that supersede each other, on four workers of which one is killed now and then. The last
// one is done last, and of each of the others it is known what became of it.
func TestTheLastOfManySuccessorsIsDoneLast(t *testing.T) {
	t.Parallel()
	server, dbServer := startShared(t), redistest.Start(t)
	client, db := named(t, server.Client(t)), dbServer.Client(t)
	start := func() *child {
		return startChild(t, server.Addr(), dbServer.Addr(), false, supersedeVariable+"=1",
			"RAILTOKEN_QUEUES=audit", "RAILTOKEN_CONCURRENCY=4", "RAILTOKEN_LOCK_TTL=2s", "RAILTOKEN_RECOVERY_AFTER=10s")
	}
	workers := []*child{start(), start(), start(), start()}
	var mu sync.Mutex // so that one task is accepted after another
	var accepted []*asynq.TaskInfo
	replaced := map[string]int{} // payloads that never ran, by the task whose they were
	var all sync.WaitGroup
	const producers = 4
	for range producers {
		producer, err := attach.NewProducer(client, attach.ProducerOptions{Observer: func(_ context.Context, e middleware.Event) {
			if e.Kind == attach.Superseded {
				replaced[e.Task.ID]++ // mu is held
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = producer.Close() })
		all.Go(func() {
			for range superseding / producers {
				<-time.After(rand.N(100 * time.Millisecond)) // producers that are not in step
				mu.Lock()
				task := asynq.NewTask("work", fmt.Appendf(nil, `{"order":"order","task":"%d"}`, len(accepted)+1))
				info, err := producer.EnqueueContext(t.Context(), task, asynq.Queue("audit"), asynq.MaxRetry(100), asynq.Retention(time.Hour),
					attach.Keys("order"), attach.Latest{}, attach.WhenHeld(supersede))
				accepted = append(accepted, info)
				mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	kills, ended := 0, false
	for tick := time.NewTicker(500 * time.Millisecond); !ended || kills < 2; kills++ {
		select {
		case <-tick.C:
		case <-done:
			tick.Stop()
			ended = true
		}
		victim := &workers[kills%len(workers)]
		(*victim).kill()
		if err := db.SAdd(t.Context(), "dead", (*victim).name).Err(); err != nil {
			t.Fatal(err)
		}
		*victim = start()
	}
	within(t, recoveryPatience, "nothing waits any more", func() bool {
		return client.LLen(t.Context(), "asynq:{audit}:pending").Val()+client.LLen(t.Context(), "asynq:{audit}:active").Val()+
			client.ZCard(t.Context(), "asynq:{audit}:retry").Val() == 0
	})
	inspector, states, ids := asynq.NewInspectorFromRedisClient(client), map[string]int{}, map[string]bool{}
	for _, info := range accepted {
		if ids[info.ID] {
			continue
		}
		ids[info.ID] = true
		got, err := inspector.GetTaskInfo(info.Queue, info.ID)
		switch {
		case err != nil:
			t.Errorf("task %s is lost: %v", info.ID, err)
		case got.State == asynq.TaskStateArchived && got.Retried > 0:
			t.Errorf("task %s has used up %d retries: %s", info.ID, got.Retried, got.LastErr)
		default:
			states[got.State.String()]++
		}
	}
	last := 0
	effects := db.LRange(t.Context(), "done:order", 0, -1).Val()
	for _, text := range effects {
		n, err := strconv.Atoi(text)
		if err != nil || n <= last {
			t.Errorf("task %s is done after task %d", text, last)
		}
		last = n
	}
	if last != len(accepted) {
		t.Errorf("task %d is done last, want %d", last, len(accepted))
	}
	sum := len(ids)
	for _, n := range replaced {
		sum += n
	}
	if sum != len(accepted) {
		t.Errorf("%d payloads are accounted for, want %d", sum, len(accepted))
	}
	if n := db.Get(t.Context(), "overlaps").Val(); n != "" {
		t.Errorf("%s runs overlapped", n)
	}
	t.Logf("%d payloads, %d tasks: %v, %d done, %d kills", len(accepted), len(ids), states, len(effects), kills)
	if len(accepted) != superseding/producers*producers || states["archived"] == 0 {
		t.Error("that shows nothing")
	}
}
