package items_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/items"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// patience bounds every wait for an event.
const patience = 30 * time.Second

// warehouseRun is the payload of the tests' tasks: each of its orders is an item.
type warehouseRun struct {
	Shift  string   `json:"shift"`
	Orders []string `json:"orders"`
}

// ordersFrom returns a run of n orders from "0" on.
func ordersFrom(n int) warehouseRun {
	r := warehouseRun{Shift: "early"}
	for i := range n {
		r.Orders = append(r.Orders, strconv.Itoa(i))
	}
	return r
}

func orderKey(id string) string { return middleware.Key("order", id) }

// site is a Redis with a worker and a producer.
type site struct {
	*testing.T
	redis    worker.Redis
	client   redis.UniversalClient
	worker   *worker.Worker
	producer *worker.Client
	log      *lines
}

// handler returns a handler of warehouse runs.
func handler(run func(ctx context.Context, order string) error) items.Handler[warehouseRun, string] {
	return items.Handler[warehouseRun, string]{
		Split:    func(r warehouseRun) []string { return r.Orders },
		ItemKeys: func(order string) []string { return []string{orderKey(order)} },
		Run:      run,
	}
}

// newSite returns a site whose worker has the handler for tasks of the type "run" and is started unless start is false.
func newSite(t *testing.T, h items.Handler[warehouseRun, string], mods ...func(*worker.Config)) *site {
	t.Helper()
	server := redistest.Start(t)
	return newSiteOn(t, worker.Redis{Addr: server.Addr()}, server.Client(t), h, mods...)
}

// newSiteOn returns such a site on a Redis.
func newSiteOn(
	t *testing.T, on worker.Redis, client redis.UniversalClient, h items.Handler[warehouseRun, string],
	mods ...func(*worker.Config),
) *site {
	t.Helper()
	s := &site{T: t, redis: on, client: client, log: &lines{}}
	producer, err := worker.NewClient(s.redis)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = producer.Close() })
	s.producer = producer
	s.worker = s.startWorker(h, mods...)
	return s
}

// startWorker starts a worker at the site.
func (s *site) startWorker(h items.Handler[warehouseRun, string], mods ...func(*worker.Config)) *worker.Worker {
	s.Helper()
	cfg := worker.Config{
		Redis: s.redis, Concurrency: 8, LockTTL: 15 * time.Second,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
		Logger:         slog.New(slog.NewTextHandler(s.log, nil)),
	}
	for _, mod := range mods {
		mod(&cfg)
	}
	w, err := worker.New(cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = w.Shutdown() })
	if err := worker.HandleItems(w, "run", h); err != nil {
		s.Fatal(err)
	}
	if err := worker.Handle(w, "audit", worker.Handler[string]{
		Keys: func(order string) []string { return []string{orderKey(order)} },
		Run:  func(context.Context, string) error { return nil },
	}); err != nil {
		s.Fatal(err)
	}
	if err := w.Start(s.Context()); err != nil {
		s.Fatal(err)
	}
	return w
}

// enqueue adds a task, which stays for an hour once it is completed.
func (s *site) enqueue(taskType string, payload any, opts ...asynq.Option) delayqueue.Task {
	s.Helper()
	opts = append([]asynq.Option{asynq.Retention(time.Hour)}, opts...)
	info, err := s.producer.Enqueue(s.Context(), taskType, payload, opts...)
	if err != nil {
		s.Fatal(err)
	}
	return delayqueue.Task{Queue: info.Queue, ID: info.ID}
}

// info returns what asynq knows of a task.
func (s *site) info(task delayqueue.Task) *asynq.TaskInfo {
	s.Helper()
	inspector := asynq.NewInspectorFromRedisClient(s.client)
	info, err := inspector.GetTaskInfo(task.Queue, task.ID)
	if err != nil {
		s.Fatal(err)
	}
	return info
}

// await waits until the task is in a state, and returns what asynq knows of it.
func (s *site) await(task delayqueue.Task, state asynq.TaskState) *asynq.TaskInfo {
	s.Helper()
	var info *asynq.TaskInfo
	s.until("the task is "+state.String(), func() bool {
		info = s.info(task)
		return info.State == state
	})
	return info
}

// until waits for a condition.
func (s *site) until(what string, reached func() bool) {
	s.Helper()
	for began := time.Now(); !reached(); <-time.After(2 * time.Millisecond) {
		if time.Since(began) > patience {
			s.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// report returns the progress of a task.
func (s *site) report(task delayqueue.Task) items.Report {
	s.Helper()
	r, err := items.Of(s.Context(), s.producer.Queue(), task)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// hold locks keys as another program would, and returns what releases them and wakes those that wait.
func (s *site) hold(keys ...string) (release func()) {
	s.Helper()
	lease, err := s.worker.Locker().Acquire(s.Context(), keys, locking.Options{TTL: 20 * time.Second, Label: "audit"})
	if err != nil {
		s.Fatal(err)
	}
	return func() {
		s.Helper()
		if err := lease.Release(s.Context()); err != nil {
			s.Error(err)
		}
		for _, key := range keys {
			if lease.ShouldNotify() {
				if _, err := s.worker.Queue().Wake(s.Context(), key, delayqueue.WakeOptions{}); err != nil {
					s.Error(err)
				}
			}
		}
	}
}

// counts counts the runs of items.
type counts struct {
	mu   sync.Mutex
	runs map[string]int
}

// add counts a run, and returns how many there were with it.
func (c *counts) add(item string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[string]int{}
	}
	c.runs[item]++
	return c.runs[item]
}

func (c *counts) of(item string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[item]
}

// wantAll checks how often each order of a run has run; n unless except has another number.
func (c *counts) wantAll(t *testing.T, r warehouseRun, n int, except map[string]int) {
	t.Helper()
	for _, order := range r.Orders {
		want := n
		if other, ok := except[order]; ok {
			want = other
		}
		if got := c.of(order); got != want {
			t.Errorf("order %s ran %d times, want %d", order, got, want)
		}
	}
}

// lines is what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), part)
}

// wantText checks that a text has each part.
func wantText(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("the text lacks %q: %s", part, text)
		}
	}
}

var errBoom = fmt.Errorf("boom")
