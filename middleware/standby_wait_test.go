package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

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

func TestAKeyIsNotIdleWhileTasksOfOneServerWaitForIt(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		const tasks, hold = 120, 5 * time.Millisecond
		u := newUsage()
		for range tasks {
			r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
		}
		r.process(10, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			u.work(ctx, task, hold)
			return nil
		})
		r.until(time.Minute, "all tasks", func() bool { return u.finished() == tasks })
		idle, gaps := u.idle("hot", time.Millisecond)
		runs := r.events.runs()
		r.Logf("idle for %v in all (%d gaps above 1ms), %.2f runs per task, 99%%: %d, most %d",
			idle, gaps, float64(sum(runs))/tasks, runs[len(runs)*99/100-1], runs[len(runs)-1])
		if idle > tasks*time.Millisecond {
			r.Errorf("the key was idle for %v between %d tasks, want at most 1ms each", idle, tasks)
		}
		if runs[len(runs)*99/100-1] > 2 {
			r.Errorf("runs of each task: %v; want at most 2 for 99%%", runs)
		}
		if len(u.overlap) > 0 {
			r.Errorf("two tasks at a time had %v", u.overlap)
		}
	})
}

func TestServersThatShareAKeyStrandNoTask(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{2, 3} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const tasks, hold = hotTasks, 5 * time.Millisecond
				u := newUsage()
				for range tasks {
					r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
				}
				began := time.Now()
				for range servers {
					r.process(6, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
						u.work(ctx, task, hold)
						return nil
					})
				}
				r.until(time.Minute, "all tasks", func() bool { return u.finished() == tasks })
				idle, gaps := u.idle("hot", time.Millisecond)
				_, long := u.idle("hot", 25*time.Millisecond)
				runs := r.events.runs()
				r.Logf("%v in all, idle for %v (%d gaps above 1ms, %d above 25ms), %.2f runs per task, most %d", time.Since(began), idle, gaps, long,
					float64(sum(runs))/tasks, runs[len(runs)-1])
				if len(u.overlap) > 0 {
					r.Errorf("two tasks at a time had %v", u.overlap)
				}
			})
		})
	}
}

// After sixteen holders in a row a gate lets other processes try, if one has asked to be told. That may be long ago, or
// by tasks that have parked: then none comes, and the key must not be idle for long.
func TestLettingOthersTryCostsLittleWhenNoneDoes(t *testing.T) {
	t.Parallel()
	for name, asked := range map[string]bool{"others have asked": true, "no other has": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const tasks, hold = hotTasks + hotTasks/3, 5 * time.Millisecond
				u := newUsage()
				if asked {
					lease := r.hold("hot")
					_, err := r.locker.Acquire(r.Context(), []string{"hot"}, locking.Options{Notify: time.Hour})
					if !errors.Is(err, locking.ErrHeld) {
						r.Fatal(err)
					}
					_ = lease.Release(r.Context())
				}
				for range tasks {
					r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
				}
				r.process(10, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
					u.work(ctx, task, hold)
					return nil
				})
				r.until(time.Minute, "all tasks", func() bool { return u.finished() == tasks })
				idle, _ := u.idle("hot", 0)
				_, long := u.idle("hot", 10*time.Millisecond)
				r.Logf("idle for %v between %d tasks, %v for each try of others; %d gaps above 10ms", idle, tasks, idle/(tasks/16), long)
				if idle > (tasks/16-1)*35*time.Millisecond {
					r.Errorf("the key was idle for %v", idle)
				}
			})
		})
	}
}

// Tasks that one server has parked are woken for another one, which has never heard of their key.
func TestAServerThatNeverMetTheWaitersWakesThem(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		u := newUsage()
		started := make(chan struct{}, 1)
		release := make(chan struct{})
		first := r.process(4, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			started <- struct{}{}
			<-release
			u.work(ctx, task, 0)
			return nil
		})
		r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
		receive(r.T, started)
		<-time.After(time.Second) // the key is held for long: none is on standby
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

// A waiter on standby that gives up passes on the wake that it has absorbed. It does not release the key: it
// stays among the waiters with its count of conflicts, or its limits would never be reached.
func TestATaskThatGivesUpOnStandbyStaysAmongTheWaiters(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		b := r.hold("b")
		started := make(chan struct{}, 1)
		r.process(6, never, asynq.Config{}, func(_ context.Context, task *asynq.Task) error {
			var p payload
			_ = json.Unmarshal(task.Payload(), &p)
			started <- struct{}{}
			<-time.After(time.Duration(p.N) * time.Millisecond)
			return nil
		})
		both := r.enqueue(payload{Key: "a,b"}, asynq.MaxRetry(3))
		r.events.await(r, 1, parked)
		for n := 2; n <= 4; n++ {
			<-time.After(time.Second)
			r.enqueue(payload{Key: "a", N: 50}, asynq.MaxRetry(3))
			receive(r.T, started)
			// As after a release of b, which is taken again at once.
			if w, err := r.queue.Wake(r.Context(), "b", delayqueue.WakeOptions{}); err != nil || !slices.Equal(w.Tasks, []delayqueue.Task{both}) {
				r.Fatalf("woken: %+v, %v", w, err)
			}
			r.events.await(r, n, parked)
			last := r.events.await(r, n, ended(middleware.Park))[n-1]
			conflict, _ := last.Err.(*middleware.ConflictError) //nolint:errorlint // an event carries the error itself
			if conflict.Task != both || conflict.Conflicts != n || conflict.Waited < time.Duration(n-1)*time.Second {
				r.Errorf("conflict %d is number %d of %v after %v", n, conflict.Conflicts, conflict.Task, conflict.Waited)
			}
		}
		r.giveBack(b)
		receive(r.T, started)
	})
}
