package middleware_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware"
)

// hot has a number of tasks for one key worked off by servers, and returns what their handlers saw. Each task takes 5 ms.
func (r *rig) hot(tasks, servers, slots int, s middleware.Strategy) (*usage, []int) {
	r.Helper()
	u := newUsage()
	for range tasks {
		r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
	}
	for range servers {
		r.process(slots, s, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			u.work(ctx, task, 5*time.Millisecond)
			return nil
		})
	}
	r.until(time.Minute, "all tasks", func() bool { return u.finished() == tasks })
	u.wantApart(r)
	idle, gaps := u.idle("hot", time.Millisecond)
	runs := r.events.runs()
	r.Logf("idle for %v in all (%d gaps above 1ms), %.2f runs per task, 99%%: %d, most %d",
		idle, gaps, float64(sum(runs))/float64(tasks), runs[len(runs)*99/100-1], runs[len(runs)-1])
	return u, runs
}

func TestAKeyIsNotIdleWhileTasksOfOneServerWaitForIt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		strategy   middleware.Strategy
		mean, most float64 // runs of a task, and of 99% of them
	}{
		"parked":    {never, 2, 2},
		"in a slot": {middleware.Wait{Max: 30 * time.Millisecond}.Then(never), 3, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const tasks = 120
				u, runs := r.hot(tasks, 1, 10, tt.strategy)
				if idle, _ := u.idle("hot", 0); idle > tasks*time.Millisecond {
					r.Errorf("the key was idle for %v between %d tasks, want at most 1ms each", idle, tasks)
				}
				if float64(sum(runs)) > tt.mean*tasks || float64(runs[len(runs)*99/100-1]) > tt.most {
					r.Errorf("runs of each task: %v; want at most %v on average, and %v for 99%%", runs, tt.mean, tt.most)
				}
			})
		})
	}
}

func TestServersThatShareAKeyStrandNoTask(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{2, 3} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) { r.hot(hotTasks, servers, 6, never) })
		})
	}
}

// Tasks that one server has parked are woken for another one, which has never heard of their key.
func TestAServerThatNeverMetTheWaitersWakesThem(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		u := newUsage()
		started, release := make(chan struct{}, 1), make(chan struct{})
		first := r.process(4, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			started <- struct{}{}
			<-release
			u.work(ctx, task, 0)
			return nil
		})
		r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
		receive(r.T, started)
		for range 3 {
			r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
		}
		r.events.await(r, 3, parked)
		<-time.After(time.Second)
		first.server.Stop() // it fetches no more
		<-time.After(time.Second)
		r.process(4, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			u.work(ctx, task, 0)
			return nil
		})
		close(release)
		r.until(10*time.Second, "the tasks that the first server has parked", func() bool { return u.finished() == 4 })
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
		p := r.process(10, middleware.Wait{Max: time.Minute}.Then(never), asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			u.work(ctx, task, 5*time.Millisecond)
			return nil
		})
		most := 0
		r.until(time.Minute, "all tasks", func() bool {
			most = max(most, p.budget.InUse())
			return u.finished() == keys*each
		})
		runs := r.events.runs()
		r.Logf("%.2f runs per task, most %d; at most %d waited", float64(sum(runs))/(keys*each), runs[len(runs)-1], most)
		if most > 5 {
			r.Errorf("%d tasks waited in 10 slots, at most 5 may", most)
		}
		if sum(runs) > 3*keys*each {
			r.Errorf("%d runs for %d tasks", sum(runs), keys*each)
		}
		u.wantApart(r)
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
		u.wantApart(r)
	})
}
