package middleware_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// process is one worker process of several: it has a gate and a budget of its own.
type process struct {
	server *asynq.Server
	budget *middleware.SlotBudget
	signal func() // ends the waiting in slots
	stop   func() // and shuts down
}

// process starts a worker process with so many slots.
func (r *rig) process(slots int, s middleware.Strategy, cfg asynq.Config, handler asynq.HandlerFunc) *process {
	r.Helper()
	opts := r.options(s)
	opts.Locker, opts.Key = locking.NewGate(r.locker, locking.GateOptions{}), keyList
	cfg.Concurrency = slots
	server := r.serve(opts, cfg, handler)
	p := &process{server: server, budget: r.budget, signal: r.attached.Stop}
	p.stop = sync.OnceFunc(func() {
		p.signal()
		p.server.Shutdown()
	})
	r.Cleanup(p.stop)
	return p
}

// never is a delay after which no task of these tests comes back: a task that runs was woken.
var never = middleware.Requeue{Delay: time.Hour}

// keyList is the key function of tasks that name their keys with commas between.
var keyList = func(_ context.Context, task *asynq.Task) ([]string, error) {
	var p payload
	if err := json.Unmarshal(task.Payload(), &p); err != nil {
		return nil, err
	}
	return strings.Split(p.Key, ","), nil
}

// usage is what the handlers of a test have seen of the keys.
type usage struct {
	mu      sync.Mutex
	holders map[string]int
	spans   map[string][]span
	done    map[string]int // by task
	overlap []string
}

type span struct{ from, to time.Time }

func newUsage() *usage {
	return &usage{holders: map[string]int{}, spans: map[string][]span{}, done: map[string]int{}}
}

// work holds the keys of a task for a time.
func (u *usage) work(ctx context.Context, task *asynq.Task, hold time.Duration) {
	keys, _ := keyList(ctx, task)
	id, _ := asynq.GetTaskID(ctx)
	from := time.Now()
	u.mu.Lock()
	for _, key := range keys {
		u.holders[key]++
		if u.holders[key] > 1 {
			u.overlap = append(u.overlap, key)
		}
	}
	u.mu.Unlock()
	if hold > 0 {
		select {
		case <-time.After(hold):
		case <-ctx.Done():
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, key := range keys {
		u.holders[key]--
		u.spans[key] = append(u.spans[key], span{from, time.Now()})
	}
	u.done[id]++
}

// finished returns how many tasks have run.
func (u *usage) finished() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.done)
}

// wantApart fails the test if two tasks had a key at a time.
func (u *usage) wantApart(r *rig) {
	r.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.overlap) > 0 {
		r.Errorf("two tasks at a time had %v", u.overlap)
	}
}

// idle returns for how long a key was free between its first and its last holder, and how many gaps were longer than a
// time.
func (u *usage) idle(key string, than time.Duration) (total time.Duration, gaps int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	spans := u.spans[key]
	for i := 1; i < len(spans); i++ {
		gap := spans[i].from.Sub(spans[i-1].to)
		total += gap
		if gap > than {
			gaps++
		}
	}
	return total, gaps
}

// until waits for a condition, in virtual time.
func (r *rig) until(most time.Duration, what string, is func() bool) {
	r.Helper()
	for began := time.Now(); !is(); <-time.After(time.Millisecond) {
		if time.Since(began) > most {
			r.Fatalf("%s: not within %v", what, most)
		}
	}
}

// runs returns how often each task was started, sorted.
func (e *events) runs() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := map[delayqueue.Task]int{}
	for _, ev := range e.all {
		if ev.Kind == middleware.Acquired || ev.Kind == middleware.Ended {
			of[ev.Task]++
		}
	}
	var counts []int
	for _, n := range of {
		counts = append(counts, n)
	}
	slices.Sort(counts)
	return counts
}

func sum(n []int) (s int) {
	for _, v := range n {
		s += v
	}
	return s
}
