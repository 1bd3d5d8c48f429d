package middleware_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/middleware"
)

// A task that is cancelled while it does not run ends at once, and the tasks behind it go on as if it had not been there.
func TestACancelledTaskThatWaitsEndsAtOnce(t *testing.T) {
	t.Parallel()
	discard := byAnn
	discard.Discard = true
	for strategyName, strategy := range parksInEachOrder {
		for how, c := range map[string]inspect.Cancellation{"archived": byAnn, "deleted": discard} {
			t.Run(strategyName+"/"+how, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(r *rig) {
					lease := r.hold("order:1")
					ran := make(chan int, 3)
					r.serve(r.options(strategy), asynq.Config{Concurrency: 4, TaskCheckInterval: lookSeldom}, func(ctx context.Context, task *asynq.Task) error {
						ran <- nOf(task)
						return nil
					})
					first := r.enqueue(payload{Key: "order:1", N: 1}, asynq.MaxRetry(0), asynq.Unique(time.Hour))
					r.events.await(r, 1, parked)
					r.enqueue(payload{Key: "order:1", N: 2})
					r.events.await(r, 2, parked)
					r.cancelTask(first, c, false)
					if c.Discard {
						r.gone(first)
						r.enqueue(payload{Key: "order:1", N: 1}, asynq.Unique(time.Hour)) // no duplicate any more
						r.events.await(r, 3, parked)
					} else if info := r.settled(first, asynq.TaskStateArchived); info.LastErr != "railtoken: cancelled by ann: ordered twice" || info.Retried != 0 {
						r.Errorf("it is %+v", info)
					} else if text := r.client.HGet(r.Context(), "asynq:{default}:t:"+first.ID, "msg").Val(); strings.Contains(text, "waits for its keys") {
						r.Errorf("its message says that it waits: %q", text)
					}
					r.giveBack(lease)
					if n := receive(r.T, ran); n != 2 {
						r.Errorf("task %d has run first", n)
					}
					if !c.Discard { // an operator runs it after all
						if err := r.inspect.RunTask(first.Queue, first.ID); err != nil {
							r.Fatal(err)
						}
						if n := receive(r.T, ran); n != 1 {
							r.Errorf("task %d has run then", n)
						}
						r.gone(first)
					}
				})
			})
		}
	}
}

// A task that holds up a line by its position, or that has a wake, is not missed when it is cancelled.
func TestBehindACancelledTaskTheNextRuns(t *testing.T) {
	t.Parallel()
	t.Run("the head of a sequence that is to be retried in an hour", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(r *rig) {
			ran := make(chan int, 3)
			r.serve(r.options(middleware.Requeue{Order: middleware.StrictFIFO}), asynq.Config{
				Concurrency: 4, TaskCheckInterval: lookSeldom, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour },
			}, func(ctx context.Context, task *asynq.Task) error {
				ran <- nOf(task)
				if nOf(task) == 1 {
					return errors.New("not today")
				}
				return nil
			})
			first := r.enqueue(payload{Key: "order:1", N: 1}, asynq.MaxRetry(3))
			receive(r.T, ran)
			r.settled(first, asynq.TaskStateRetry)
			r.enqueue(payload{Key: "order:1", N: 2})
			r.events.await(r, 1, parked)
			r.cancelTask(first, byAnn, false)
			began := time.Now()
			if n := receive(r.T, ran); n != 2 || time.Since(began) > time.Second {
				r.Errorf("task %d has run after %v", n, time.Since(began))
			}
		})
	})
	t.Run("one that was woken", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(r *rig) {
			lease := r.hold("order:1")
			ran := make(chan int, 3)
			opts := r.options(middleware.Requeue{})
			server := r.serve(opts, asynq.Config{Concurrency: 4, TaskCheckInterval: lookSeldom}, func(context.Context, *asynq.Task) error { return nil })
			first := r.enqueue(payload{Key: "order:1", N: 1})
			r.events.await(r, 1, parked)
			r.enqueue(payload{Key: "order:1", N: 2})
			r.events.await(r, 2, parked)
			server.Shutdown() // so that the woken task stays pending
			r.giveBack(lease)
			r.settled(first, asynq.TaskStatePending)
			r.cancelTask(first, byAnn, false)
			r.serve(opts, asynq.Config{Concurrency: 4, TaskCheckInterval: lookSeldom}, func(ctx context.Context, task *asynq.Task) error {
				ran <- nOf(task)
				return nil
			})
			began := time.Now()
			if n := receive(r.T, ran); n != 2 || time.Since(began) > 300*time.Millisecond {
				r.Errorf("task %d has run after %v", n, time.Since(began))
			}
		})
	})
}

// nOf returns the number in a task's payload.
func nOf(task *asynq.Task) int {
	var n int
	_, _ = middleware.PayloadKey(func(p payload) string { n = p.N; return "any" })(context.Background(), task)
	return n
}

// A task that waits in its slot is told like one whose handler runs.
func TestACancelledWaitInASlotEnds(t *testing.T) {
	t.Parallel()
	for name, strategy := range inTheSlot {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				lease := r.hold("order:1")
				ran := make(chan int, 3)
				r.serve(r.options(strategy), asynq.Config{Concurrency: 4, TaskCheckInterval: lookSeldom}, func(ctx context.Context, task *asynq.Task) error {
					ran <- nOf(task)
					return nil
				})
				task := r.enqueue(payload{Key: "order:1", N: 1}, asynq.MaxRetry(0))
				r.events.await(r, 1, func(e middleware.Event) bool { return e.Kind == middleware.Refused })
				r.enqueue(payload{Key: "order:1", N: 2}, asynq.MaxRetry(0))
				r.events.await(r, 2, func(e middleware.Event) bool { return e.Kind == middleware.Refused })
				began := time.Now()
				r.cancelTask(task, byAnn, true)
				if info := r.settled(task, asynq.TaskStateArchived); info.Retried != 0 || info.LastErr != "railtoken: cancelled by ann: ordered twice" {
					r.Errorf("it is %+v", info)
				}
				if took := time.Since(began); took > time.Second {
					r.Errorf("it has ended after %v", took)
				}
				r.events.await(r, 1, func(e middleware.Event) bool {
					_, ok := errors.AsType[*middleware.CancelledError](e.Err)
					return ok && e.Kind == middleware.Ended && e.Task == task
				})
				r.giveBack(lease)
				if n := receive(r.T, ran); n != 2 {
					r.Errorf("task %d has run", n)
				}
			})
		})
	}
}

// What cannot be cancelled stays as it is, and the error says why.
func TestWhatCannotBeCancelledStays(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		i := r.inspector()
		fault := func(t delayqueue.Task, c inspect.Cancellation, want string) {
			r.Helper()
			told, err := i.Cancel(r.Context(), t, c)
			if told || err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, inspect.ErrNotCancelled) != (c.Validate() == nil) {
				r.Errorf("told %v, error %v; want %q", told, err, want)
			}
		}
		server := r.serve(r.options(middleware.Requeue{}), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
		completed := r.enqueue(payload{Key: "a"}, asynq.Retention(time.Hour))
		r.settled(completed, asynq.TaskStateCompleted)
		server.Shutdown()
		archived := r.enqueue(payload{Key: "a"}, asynq.ProcessIn(time.Hour))
		if err := r.inspect.ArchiveTask(archived.Queue, archived.ID); err != nil {
			r.Fatal(err)
		}
		foreign := r.enqueue(payload{Key: "a"}, asynq.ProcessIn(time.Hour))
		if err := r.client.HDel(r.Context(), "asynq:{default}:t:"+foreign.ID, "pending_since").Err(); err != nil {
			r.Fatal(err)
		}
		r.fetch(foreign)
		group := r.enqueue(payload{Key: "a"}, asynq.Group("g"))
		fault(archived, byAnn, "is archived")
		fault(completed, byAnn, "is completed")
		fault(delayqueue.Task{Queue: "default", ID: "none"}, byAnn, "does not exist")
		fault(foreign, byAnn, "a server without railtoken")
		fault(group, byAnn, "is in a group")
		fault(archived, inspect.Cancellation{}, "By has 0 bytes")
		fault(archived, inspect.Cancellation{By: "ann", Why: strings.Repeat("x", 501)}, "Why has 501 bytes")
		if n := r.client.HExists(r.Context(), "asynq:{default}:t:"+foreign.ID, "railtoken:cancel").Val(); n {
			r.Error("the task of the other server has a word for it")
		}
	})
}
