package middleware_test

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// wantFree fails the test unless the key can be had at once and no task counts as waiting in its slot.
func (r *rig) wantFree(key string) {
	r.Helper()
	lease, err := r.locker.Acquire(context.Background(), []string{key}, locking.Options{})
	if err != nil {
		r.Errorf("the key is not free: %v", err)
		return
	}
	_ = lease.Release(context.Background())
	if n := r.budget.InUse(); n != 0 {
		r.Errorf("%d tasks count as waiting in their slots, want none", n)
	}
}

// Three tasks of a key cause every kind of event. Whatever the observer does at one of them, all three run.
func TestAnObserverThatPanicsFailsNoTask(t *testing.T) {
	t.Parallel()
	for _, kind := range []middleware.EventKind{
		middleware.Refused, middleware.Acquired, middleware.Released, middleware.Ended, middleware.Parked, middleware.Woke,
	} {
		for name, s := range map[string]middleware.Requeue{
			"parked":   {Delay: time.Hour},
			"in order": {Delay: time.Hour, Order: middleware.FIFO},
		} {
			t.Run(string(kind)+"/"+name, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(r *rig) {
					var log lines
					var panics atomic.Int32
					u := newUsage()
					opts := r.options(s)
					opts.SlotBudget, opts.Logger = 2, slog.New(slog.NewTextHandler(&log, nil))
					opts.Observer = func(_ context.Context, e middleware.Event) {
						if e.Kind == kind {
							panics.Add(1)
							panic("the observer is broken")
						}
					}
					r.serve(opts, asynq.Config{Concurrency: 6}, func(ctx context.Context, task *asynq.Task) error {
						u.work(ctx, task, 50*time.Millisecond)
						return nil
					})
					var tasks []delayqueue.Task
					for range 3 {
						tasks = append(tasks, r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3)))
					}
					for _, task := range tasks {
						r.gone(task)
					}
					if n := u.finished(); n != 3 {
						r.Errorf("%d of 3 tasks ran", n)
					}
					r.wantFree("order:1")
					if name == "parked" && panics.Load() == 0 {
						r.Errorf("there was no event of kind %q", kind)
					}
					if n := int(panics.Load()); log.count("level=ERROR") != n || log.count("the observer is broken") != n {
						r.Errorf("the log tells of %d panics, want %d", log.count("level=ERROR"), n)
					}
				})
			})
		}
	}
}

// A task that was woken meets code of the user's that does not return. The next waiter runs all the same, at once; the
// task is retried as after any panic of a handler, unless it was acknowledged before, and nothing of its run is left.
func TestUserCodeThatPanicsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	hooks := map[string]userCode{
		"key function": {set: func(o *options, _ *asynq.HandlerFunc, end func()) {
			find := o.Key
			o.Key = func(ctx context.Context, task *asynq.Task) ([]string, error) {
				end()
				return find(ctx, task)
			}
		}},
		"handler": {set: func(_ *options, handle *asynq.HandlerFunc, end func()) {
			inner := *handle
			*handle = func(ctx context.Context, task *asynq.Task) error {
				end()
				return inner(ctx, task)
			}
		}},
		"strategy": {refused: true, set: func(o *options, _ *asynq.HandlerFunc, end func()) {
			o.Strategy = endingStrategy{o.Strategy, end}
		}},
		"OnLimit": {refused: true, set: func(o *options, _ *asynq.HandlerFunc, end func()) {
			s, _ := o.Strategy.(middleware.Requeue)
			s.Limits.Conflicts = 1
			s.OnLimit = func(context.Context, *asynq.Task, *middleware.ConflictError) error {
				end()
				return nil
			}
			o.Strategy = s
		}},
	}
	for _, kind := range []middleware.EventKind{middleware.Acquired, middleware.Released, middleware.Ended, middleware.Woke} {
		hooks["observer/"+string(kind)] = userCode{
			refused: kind == middleware.Ended, recovered: true, runs: kind == middleware.Released || kind == middleware.Woke,
			set: func(o *options, _ *asynq.HandlerFunc, end func()) {
				observe := o.Observer
				o.Observer = func(ctx context.Context, e middleware.Event) {
					observe(ctx, e)
					if e.Kind == kind {
						end()
					}
				}
			},
		}
	}
	for name, hook := range hooks {
		for how, end := range map[string]func(){"panics": func() { panic("it is broken") }, "ends its goroutine": runtime.Goexit} {
			if hook.recovered && how == "panics" {
				continue // TestAnObserverThatPanicsFailsNoTask
			}
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(r *rig) { r.breakOff(hook, how == "panics", end) })
			})
		}
	}
}

// userCode is a place where code of the user's runs.
type userCode struct {
	refused   bool // it runs for a task that is refused its key
	recovered bool // from its panics
	runs      bool // the task was acknowledged by then
	set       func(o *options, handle *asynq.HandlerFunc, end func())
}

// endingStrategy calls end before each decision.
type endingStrategy struct {
	middleware.Strategy

	end func()
}

func (s endingStrategy) Decide(c middleware.Conflict) middleware.Decision {
	s.end()
	return s.Strategy.Decide(c)
}

// breakOff parks two tasks and wakes the first, whose run ends at the hook.
func (r *rig) breakOff(hook userCode, panics bool, end func()) {
	r.Helper()
	var armed atomic.Bool
	ran := make(chan string, 3)
	handle := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ran <- id
		return nil
	})
	opts := r.options(middleware.Requeue{Delay: time.Hour})
	opts.SlotBudget = 2
	hook.set(&opts, &handle, func() {
		if armed.CompareAndSwap(true, false) {
			end()
		}
	})
	lease := r.hold("order:1")
	r.serve(opts, asynq.Config{Concurrency: 4, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 2 * time.Hour }}, handle)
	victim := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3), asynq.Timeout(5*time.Second))
	r.settled(victim, asynq.TaskStateRetry)
	other := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
	r.settled(other, asynq.TaskStateRetry)
	armed.Store(true)
	if hook.refused {
		if _, err := r.queue.Wake(r.Context(), "order:1", delayqueue.WakeOptions{}); err != nil {
			r.Fatal(err)
		}
		r.until(10*time.Second, "the hook", func() bool { return !armed.Load() })
		<-time.After(10 * time.Millisecond)
	}
	r.giveBack(lease)
	released := time.Now()
	if hook.runs {
		if id := receive(r.T, ran); id != victim.ID {
			r.Errorf("%s ran, want %s", id, victim.ID)
		}
	}
	if id := receive(r.T, ran); id != other.ID {
		r.Errorf("%s ran, want %s", id, other.ID)
	}
	if took := time.Since(released); took > time.Second {
		r.Errorf("the next waiter ran after %v, want within 1s", took)
	}
	r.gone(other)
	r.wantFree("order:1")
	if hook.runs {
		r.gone(victim)
	} else {
		r.retried(victim, released, panics)
	}
	if waiters, err := r.queue.Inspector().Waiters(r.Context(), "order:1", 10); err != nil || len(waiters) != 0 {
		r.Errorf("waiters %v, %v; want none", waiters, err)
	}
}

// retried waits until a task was retried after its code has panicked, or has ended its goroutine.
func (r *rig) retried(victim delayqueue.Task, since time.Time, panics bool) {
	r.Helper()
	info := r.settled(victim, asynq.TaskStateRetry)
	for info.Retried == 0 { // of a goroutine that has ended asynq hears nothing: it is the task's timeout that ends it
		<-time.After(time.Second)
		if time.Since(since) > limit {
			r.Fatalf("the task was not retried: %+v", info)
		}
		info = r.settled(victim, asynq.TaskStateRetry)
	}
	want := "deadline exceeded"
	if panics {
		want = "it is broken"
	}
	if !strings.Contains(info.LastErr, want) {
		r.Errorf("the task's error is %q, want %q in it", info.LastErr, want)
	}
}

// A task that has collected its keys one by one gives all of them back.
func TestAPanicGivesBackCollectedKeys(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		a, b := r.hold("a"), r.hold("b")
		opts := r.options(middleware.Requeue{Delay: time.Second})
		opts.Key = keyList
		r.serve(opts, asynq.Config{Concurrency: 4, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }},
			func(context.Context, *asynq.Task) error { panic("it is broken") })
		task := r.enqueue(payload{Key: "a,b"}, asynq.MaxRetry(3))
		r.events.await(r, 2, parked)
		for _, lease := range []*locking.Lease{a, b} { // it collects only behind holders that have just begun
			_ = lease.Release(r.Context())
		}
		a, b = r.hold("a"), r.hold("b")
		<-time.After(3 * time.Second) // it waits for the first key, in its slot
		if n := len(r.events.await(r, 2, parked)); n != 2 {
			r.Fatalf("the task was parked %d times", n)
		}
		_ = a.Release(r.Context())
		_ = b.Release(r.Context())
		r.events.await(r, 1, func(e middleware.Event) bool { return e.Kind == middleware.Released })
		if info := r.settled(task, asynq.TaskStateRetry); !strings.Contains(info.LastErr, "it is broken") {
			r.Errorf("the task's error is %q", info.LastErr)
		}
		lease, err := r.locker.Acquire(r.Context(), []string{"a", "b"}, locking.Options{})
		if err != nil {
			r.Fatalf("the keys are not free: %v", err)
		}
		_ = lease.Release(r.Context())
	})
}
