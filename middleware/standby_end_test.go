package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// The wake that a waiter on standby absorbed goes on to the next waiter when it gives up: at once, or after 3 s when it has
// collected its keys until then.
func TestAWaiterThatGivesUpWakesTheNext(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.hold("b")
		u := newUsage()
		r.process(6, middleware.Requeue{Delay: time.Hour, Standby: 1}, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			var p payload
			_ = json.Unmarshal(task.Payload(), &p)
			u.work(ctx, task, time.Duration(p.N)*time.Millisecond)
			return nil
		})
		r.enqueue(payload{Key: "a", N: 100}, asynq.MaxRetry(3))
		<-time.After(50 * time.Millisecond)
		r.enqueue(payload{Key: "a,b"}, asynq.MaxRetry(3)) // takes the place on standby, and cannot have b
		<-time.After(20 * time.Millisecond)
		for range 3 {
			r.enqueue(payload{Key: "a", N: 5}, asynq.MaxRetry(3))
		}
		r.until(5*time.Second, "the others", func() bool { return u.finished() == 4 })
	})
}

// With more hot keys than the budget allows to wait, a task that finds no room parks. No task is stranded, and the
// budget is kept.
func TestManyHotKeysKeepToTheBudget(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		const keys, each = 8, hotTasks / 5
		u := newUsage()
		random := rand.New(rand.NewPCG(1, 3)) //nolint:gosec // a test that can be repeated
		for range keys * each {
			r.enqueue(payload{Key: fmt.Sprint("k", random.IntN(keys))}, asynq.MaxRetry(3))
		}
		began := time.Now()
		p := r.process(10, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			u.work(ctx, task, 5*time.Millisecond)
			return nil
		})
		most := 0
		r.until(time.Minute, "all tasks", func() bool {
			most = max(most, p.budget.InUse())
			return u.finished() == keys*each
		})
		runs := r.events.runs()
		r.Logf("%v in all, %.2f runs per task, most %d; at most %d waited", time.Since(began), float64(sum(runs))/(keys*each), runs[len(runs)-1], most)
		if most > 5 {
			r.Errorf("%d tasks waited in 10 slots, at most 5 may", most)
		}
		if sum(runs) > 3*keys*each {
			r.Errorf("%d runs for %d tasks", sum(runs), keys*each)
		}
		if len(u.overlap) > 0 {
			r.Errorf("two tasks at a time had %v", u.overlap)
		}
		r.until(time.Second, "the budget is given back", func() bool { return p.budget.InUse() == 0 })
	})
}

// A task that needs two keys waits for both.
func TestATaskWithTwoKeysIsNotStarved(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		u := newUsage()
		r.process(10, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			u.work(ctx, task, 5*time.Millisecond)
			return nil
		})
		stop := make(chan struct{})
		var all sync.WaitGroup
		for _, key := range []string{"a", "b"} {
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(4 * time.Millisecond): // faster than they are worked off
						r.enqueue(payload{Key: key}, asynq.MaxRetry(3))
					}
				}
			})
		}
		<-time.After(200 * time.Millisecond)
		both := r.enqueue(payload{Key: "a,b"}, asynq.MaxRetry(3), asynq.Queue("default"))
		began := time.Now()
		r.until(20*time.Second, "the task with two keys", func() bool {
			u.mu.Lock()
			defer u.mu.Unlock()
			return u.done[both.ID] > 0
		})
		r.Logf("the task with two keys ran after %v, %d others have run", time.Since(began), u.finished()-1)
		close(stop)
		all.Wait()
		u.mu.Lock()
		defer u.mu.Unlock()
		if len(u.overlap) > 0 {
			r.Errorf("two tasks at a time had %v", u.overlap)
		}
	})
}

// stubborn is a strategy that always waits on standby.
type stubborn struct {
	places int
	until  time.Duration
	asked  *atomic.Int64
}

func (s stubborn) Decide(c middleware.Conflict) middleware.Decision {
	s.asked.Add(1)
	return middleware.Decision{Outcome: middleware.WaitInSlot, Standby: true, StandbyLimit: s.places, WaitUntil: c.Now.Add(s.until), Delay: time.Hour}
}

// enough is a strategy that waits on standby for an hour, and gives up when it is asked too often.
type enough struct{ stubborn }

func (s enough) Decide(c middleware.Conflict) middleware.Decision {
	if d := s.stubborn.Decide(c); s.asked.Load() < 100 {
		return d
	}
	return middleware.Decision{Outcome: middleware.Archive}
}

func TestATaskOnStandbyWhoseTimeIsUpAsksNoMore(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]string{"one key": "a", "two keys": "a,b"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				var asked atomic.Int64
				begun := make(chan struct{})
				p := r.process(8, enough{stubborn{places: 1, until: time.Hour, asked: &asked}}, asynq.Config{},
					func(ctx context.Context, task *asynq.Task) error {
						if strings.Contains(string(task.Payload()), "warm-up") {
							return nil
						}
						close(begun)
						<-time.After(5 * time.Second)
						return nil
					})
				p.warmUp(r)
				holder := r.enqueue(payload{Key: "a"}, asynq.MaxRetry(3))
				receive(r.T, begun)
				r.enqueue(payload{Key: keys}, asynq.MaxRetry(3), asynq.Timeout(time.Second))
				r.gone(holder)
				if n := asked.Load(); n == 0 || n > 5 {
					r.Errorf("the strategy was asked %d times", n)
				}
			})
		})
	}
}

func TestAStrategyThatMayNotWaitOnStandbyNeitherSpinsNorBlocks(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]stubborn{"no places": {until: time.Second}, "a time in the past": {places: 1, until: -time.Second}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				lease := r.hold("a")
				s.asked = &atomic.Int64{}
				u := newUsage()
				p := r.process(2, s, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
					u.work(ctx, task, 0)
					return nil
				})
				began := time.Now()
				r.enqueue(payload{Key: "a"}, asynq.MaxRetry(3))
				r.events.await(r, 1, parked)
				if took := time.Since(began); took > 100*time.Millisecond || s.asked.Load() > 2 || p.budget.InUse() != 0 {
					r.Errorf("it parked after %v, the strategy was asked %d times, %d wait", took, s.asked.Load(), p.budget.InUse())
				}
				<-time.After(time.Second)
				r.giveBack(lease)
				r.until(time.Minute, "the task", func() bool { return u.finished() == 1 })
			})
		})
	}
}

func TestAShutdownParksStandbyAndAnotherServerGoesOn(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		const tasks = 60
		u := newUsage()
		handler := func(ctx context.Context, task *asynq.Task) error {
			u.work(ctx, task, 5*time.Millisecond)
			return nil
		}
		for range tasks {
			r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
		}
		first := r.process(8, never, asynq.Config{}, handler)
		r.until(time.Minute, "tasks wait", func() bool { return u.finished() > 10 && first.budget.InUse() > 0 })
		first.signal()
		r.until(20*time.Millisecond, "no task waits in a slot", func() bool { return first.budget.InUse() == 0 })
		first.server.Shutdown()
		before := u.finished()
		r.process(8, never, asynq.Config{}, handler)
		r.until(10*time.Second, fmt.Sprintf("the %d tasks that are left", tasks-before), func() bool { return u.finished() == tasks })
		if len(u.overlap) > 0 {
			r.Errorf("two tasks at a time had %v", u.overlap)
		}
	})
}

func TestAShutdownEndsTheTimeOnStandbyAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.hold("hot")
		p := r.process(4, never, asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
		p.warmUp(r)
		r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
		r.until(time.Second, "the task waits", func() bool { return p.budget.InUse() == 1 })
		p.signal()
		began := time.Now()
		r.events.await(r, 1, parked)
		if took := time.Since(began); took > 20*time.Millisecond {
			r.Errorf("it parked %v after the signal", took)
		}
	})
}

// A lease is lost, a handler releases early, another one panics, and the next task runs.
func TestTheNextTaskRunsWhateverAHolderDoes(t *testing.T) {
	t.Parallel()
	for name, misdeed := range map[string]func(r *rig, ctx context.Context){
		"panics": func(*rig, context.Context) { panic("a handler of the test") },
		"releases early": func(_ *rig, ctx context.Context) {
			l, _ := locking.FromContext(ctx)
			_ = l.Release(ctx)
			<-time.After(3 * time.Millisecond)
		},
		"loses its lease":  func(r *rig, ctx context.Context) { r.client.Del(ctx, "railtoken:lock:{hot}"); <-ctx.Done() },
		"is past its time": func(_ *rig, ctx context.Context) { <-ctx.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const tasks = 30
				u := newUsage()
				first := r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(1), asynq.Timeout(2*time.Second))
				for range tasks {
					r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
				}
				var bad atomic.Bool
				r.process(8, never, asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second }},
					func(ctx context.Context, task *asynq.Task) error {
						id, _ := asynq.GetTaskID(ctx)
						if id == first.ID && bad.CompareAndSwap(false, true) {
							misdeed(r, ctx)
							return ctx.Err()
						}
						u.work(ctx, task, 5*time.Millisecond)
						return nil
					})
				r.until(40*time.Second, "the others", func() bool { return u.finished() >= tasks })
				if len(u.overlap) > 0 {
					r.Errorf("two tasks at a time had %v", u.overlap)
				}
			})
		})
	}
}

// A task that is not on standby is woken when it can run, most of the time.
func TestOtherStrategiesRunATaskAFewTimes(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]middleware.Strategy{
		"none on standby": middleware.Requeue{Delay: time.Hour, Standby: -1},
		"wait":            middleware.Wait{Max: 30 * time.Millisecond}.Then(never),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const tasks = 60
				u := newUsage()
				for range tasks {
					r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
				}
				r.process(8, s, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
					u.work(ctx, task, 5*time.Millisecond)
					return nil
				})
				r.until(time.Minute, "all tasks", func() bool { return u.finished() == tasks })
				runs := r.events.runs()
				idle, _ := u.idle("hot", 0)
				r.Logf("%.2f runs per task, most %d; the key was idle for %v", float64(sum(runs))/tasks, runs[len(runs)-1], idle)
				if sum(runs) > 3*tasks {
					r.Errorf("%d runs for %d tasks", sum(runs), tasks)
				}
			})
		})
	}
}

func TestAShortTimeoutIsHardlyUsedForStandby(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.hold("hot")
		p := r.process(4, never, asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
		p.warmUp(r)
		r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3), asynq.Timeout(5*time.Second))
		refused := r.events.await(r, 1, func(e middleware.Event) bool { return e.Kind == middleware.Refused })[0].At
		parked := r.events.await(r, 1, parked)[0].At
		if took := parked.Sub(refused); took < 40*time.Millisecond || took > 60*time.Millisecond {
			r.Errorf("a task with 5s left waited for %v, want a hundredth of that", took)
		}
		if n := p.budget.InUse(); n != 0 {
			r.Errorf("%d wait", n)
		}
	})
}

// deleteParked deletes a task as an operator would, if it is parked and not woken.
var deleteParked = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'state') ~= 'retry' then return 0 end
redis.call('ZREM', KEYS[2], ARGV[1])
return redis.call('DEL', KEYS[1])`)
