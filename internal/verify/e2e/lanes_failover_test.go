//go:build thorough

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// A master of a Cluster with lanes is killed, and so is its successor, while slots move between the others. asynq alone is under the same
// faults on queues in the same slots: no more tasks may run twice than there.
func TestFailoversOfLanesLoseNoTask(t *testing.T) {
	t.Parallel()
	const orders, each, slots = 500, 20, 40
	const work = 200 * time.Millisecond
	var doubled [2]int
	for i, name := range []string{"asynq alone", "in lanes"} { // in turn: each gets the whole machine
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // in turn
			f := startFailing(t)
			handler := func(ctx context.Context, o order) error {
				defer f.enter(o)()
				select {
				case <-time.After(work):
				case <-ctx.Done():
				}
				if name == "asynq alone" {
					return f.db.HIncrBy(context.WithoutCancel(ctx), "effects", o.Task, 1).Err()
				}
				return effect(ctx, f.db, o, false)
			}
			l, _ := lanes.New(64)
			if name == "asynq alone" {
				f.startAsynq(l, orders, each, slots, handler)
			} else {
				w, producer := newWorker(t, worker.Config{
					Redis: inNamespace(worker.Redis{Cluster: f.cluster.Addrs(), Lanes: 64}), Queues: map[string]int{"audit": 1}, Concurrency: slots,
					Strategy: middleware.Requeue{}, LockTTL: failedTTL,
					RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
				}, handler)
				enqueue(t, producer, "audit", orders, each, asynq.MaxRetry(50))
				f.cluster.WaitForReplicas(t)
				if err := w.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			f.breakAll(l, orders*each)
			within(t, 4*time.Minute, "all are done", func() bool { return f.done() == orders*each })
			drainedIn(t, f.client, 4*time.Minute, allOf(t, 64, "audit")...)
			for _, runs := range f.runs {
				if runs > 1 {
					doubled[i]++
				}
			}
			t.Logf("%d of %d tasks ran more than once, %d overlaps", doubled[i], orders*each, len(f.overlaps))
			if name == "in lanes" {
				f.check(l, orders*each)
				nothingRemains(t, f.client)
			}
		})
	}
	if doubled[1] > doubled[0] {
		t.Errorf("%d tasks ran more than once, %d of asynq alone", doubled[1], doubled[0])
	}
}

// failedTTL is that of the locks.
const failedTTL = 10 * time.Second

// failing is a Cluster that fails, and what runs on it.
type failing struct {
	*testing.T
	cluster *redistest.Cluster
	client  redis.UniversalClient
	db      *redis.Client

	mu        sync.Mutex
	inside    map[string]int // tasks, by their orders
	runs      map[string]int // by tasks
	overlaps  []overlap
	failovers []time.Time
}

type overlap struct {
	order string
	at    time.Time
}

func startFailing(t *testing.T) *failing {
	t.Helper()
	cluster := redistest.StartCluster(t, 3)
	cluster.AddReplicas(t)
	admit(t, cluster.Nodes()...)
	admit(t, cluster.Replicas()...)
	return &failing{
		T: t, cluster: cluster, client: named(t, cluster.Client(t)), db: redistest.Start(t).Client(t),
		inside: map[string]int{}, runs: map[string]int{},
	}
}

// enter notes that a task works on its order. It returns what notes the end.
func (f *failing) enter(o order) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.inside[o.Order] > 0 {
		f.overlaps = append(f.overlaps, overlap{o.Order, time.Now()})
	}
	f.inside[o.Order]++
	f.runs[o.Task]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.inside[o.Order]--
	}
}

// startAsynq has a plain server work on the same tasks in the queues of the lanes.
func (f *failing) startAsynq(l lanes.Lanes, orders, each, slots int, handler func(context.Context, order) error) {
	f.Helper()
	client := asynq.NewClientFromRedisClient(f.client)
	for i := range orders * each {
		o := order{Order: fmt.Sprint("order:", i%orders), Task: fmt.Sprint("task:", i)}
		payload, _ := json.Marshal(o)
		queue := asynq.Queue(l.Queue("audit", l.Of(o.Order)))
		if _, err := client.Enqueue(asynq.NewTask("work", payload), queue, asynq.MaxRetry(50)); err != nil {
			f.Fatal(err)
		}
	}
	f.cluster.WaitForReplicas(f)
	queues := map[string]int{}
	for _, queue := range l.Queues("audit") {
		queues[queue] = 1
	}
	server := asynq.NewServerFromRedisClient(f.client, asynq.Config{
		Concurrency: slots, Queues: queues, LogLevel: asynq.FatalLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
	})
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		var o order
		if err := json.Unmarshal(task.Payload(), &o); err != nil {
			return err
		}
		return handler(ctx, o)
	}))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(server.Shutdown)
}

func (f *failing) done() int { return int(f.db.HLen(f.Context(), "effects").Val()) }

// breakAll moves a slot each second, and has the first master fail over twice, until all tasks are done.
func (f *failing) breakAll(l lanes.Lanes, all int) {
	f.Helper()
	moves, beats := 0, time.NewTicker(time.Second)
	defer beats.Stop()
	for began := time.Now(); f.done() < all && time.Since(began) < 3*time.Minute; <-beats.C {
		if n := len(f.failovers); n < 2 && f.done() > all*(n+1)/4 {
			f.mu.Lock()
			f.failovers = append(f.failovers, time.Now())
			f.mu.Unlock()
			f.cluster.Failover(f, 0)
			admit(f.T, f.cluster.Replicas()[0])
			continue
		}
		slot := l.Slot(moves * 7 % 64)
		f.cluster.MoveSlot(f, slot, f.cluster.Nodes()[nextOwner(f.T, f.cluster, slot)])
		moves++
	}
	f.Logf("%d slots moved, %d failovers", moves, len(f.failovers))
	if moves < 10 || len(f.failovers) < 2 {
		f.Errorf("%d slots moved, and there were %d failovers: this shows little", moves, len(f.failovers))
	}
}

// check checks the effects, of which none is lost or doubled, and that tasks of an order have met only after a failover, which may lose the
// lock of the first: then its fence has refused the late one.
func (f *failing) check(l lanes.Lanes, all int) {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.overlaps {
		excused := false
		for _, at := range f.failovers {
			excused = excused || o.at.After(at) && o.at.Before(at.Add(30*time.Second+failedTTL))
		}
		if !excused {
			f.Errorf("two tasks of %s, in lane %d, met with no failover at hand", o.order, l.Of(o.order))
		}
	}
	for task, n := range f.db.HGetAll(f.Context(), "effects").Val() {
		if n != "1" {
			f.Errorf("the effect of %s is there %s times", task, n)
		}
	}
	sum := 0
	for _, revision := range f.db.HVals(f.Context(), "revisions").Val() {
		var n int
		_, _ = fmt.Sscan(revision, &n)
		sum += n
	}
	if sum != all {
		f.Errorf("the orders were revised %d times by %d tasks", sum, all)
	}
}
