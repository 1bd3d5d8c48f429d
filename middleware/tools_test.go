package middleware_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// These tests hold the middleware to this: what an operator does to parked tasks with asynq's own tools never strands
// the others.

// cancel cancels a run of a task by asynq's own tool until its context has ended.
func (l *scene) cancel(ctx context.Context, id string) {
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < limit; <-time.After(time.Millisecond) {
		if err := l.inspect.CancelProcessing(id); err != nil {
			l.Error(err)
			return
		}
	}
}

// cancelAt has the n-th run of a task from now on cancelled before it asks for the key.
func (l *scene) cancelAt(t delayqueue.Task, n int) {
	var mu sync.Mutex
	cancelled := make(chan struct{})
	l.cancelled = cancelled
	l.before(func(ctx context.Context, id string) {
		mu.Lock()
		defer mu.Unlock()
		if id != t.ID {
			return
		}
		n--
		if n == 0 {
			l.cancel(ctx, id)
			close(cancelled)
		}
	})
}

// cancelAsItParks has the next run of a task cancelled that ends in conflict, before asynq acknowledges it.
func (l *scene) cancelAsItParks(t delayqueue.Task) {
	cancelled := make(chan struct{})
	l.cancelled = cancelled
	var once sync.Once
	conflict := ended(middleware.Park)
	l.events.mu.Lock()
	defer l.events.mu.Unlock()
	l.events.during = func(ctx context.Context, e middleware.Event) {
		if e.Task == t && conflict(e) {
			once.Do(func() {
				l.cancel(ctx, t.ID)
				close(cancelled)
			})
		}
	}
}

// What becomes of a waiter that a tool was used on.
const (
	runs = iota
	isGone
	isArchived
	hasFailed
)

func TestAToolUsedOnAWaiterStrandsNoTask(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, tool := range map[string]struct {
		fate int
		use  func(l *scene, w delayqueue.Task)
	}{
		"delete": {isGone, func(l *scene, w delayqueue.Task) {
			l.must(nil, l.inspect.DeleteTask(w.Queue, w.ID))
		}},
		"archive": {isArchived, func(l *scene, w delayqueue.Task) {
			l.must(nil, l.inspect.ArchiveTask(w.Queue, w.ID))
		}},
		"run by hand": {runs, func(l *scene, w delayqueue.Task) {
			l.must(nil, l.inspect.RunTask(w.Queue, w.ID))
			l.parked(w, 2)
		}},
		"archive and run by hand": {runs, func(l *scene, w delayqueue.Task) {
			l.must(nil, l.inspect.ArchiveTask(w.Queue, w.ID))
			l.must(nil, l.inspect.RunTask(w.Queue, w.ID))
			l.parked(w, 2)
		}},
		"delete and enqueue again": {runs, func(l *scene, w delayqueue.Task) {
			l.must(nil, l.inspect.DeleteTask(w.Queue, w.ID))
			l.add(w)
			l.parked(w, 2)
		}},
		"cancel at its first look": {runs, func(l *scene, w delayqueue.Task) {
			l.cancelAt(w, 1)
			l.must(nil, l.inspect.RunTask(w.Queue, w.ID))
			receive(l.T, l.cancelled)
		}},
		"cancel as it is about to park": {runs, func(l *scene, w delayqueue.Task) {
			l.cancelAsItParks(w)
			l.must(nil, l.inspect.RunTask(w.Queue, w.ID))
			receive(l.T, l.cancelled)
		}},
		"cancel once it is woken": {hasFailed, func(l *scene, w delayqueue.Task) {
			l.retryIn.Store(int64(time.Hour)) // or it would come back in time to wake the others
			l.cancelAt(w, 1)
		}},
	} {
		for place, i := range map[string]int{"first": 0, "middle": 2, "last": 4} {
			t.Run(name+"/"+place, func(t *testing.T) {
				t.Parallel()
				l := newScene(t, server.Client(t), t.Name())
				victim := l.waiters[i]
				tool.use(l, victim)
				want := l.waiters
				if tool.fate != runs {
					want = without(want, victim)
				}
				l.end(want)
				switch tool.fate {
				case isGone:
					l.gone(victim)
				case isArchived:
					l.settled(victim, asynq.TaskStateArchived)
				case hasFailed:
					l.settled(victim, asynq.TaskStateRetry)
				}
			})
		}
	}
}

func TestAToolUsedOnTheHolderStrandsNoTask(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cancel := func(l *scene) {
		for began := time.Now(); time.Since(began) < limit; <-time.After(time.Millisecond) {
			info, err := l.inspect.GetTaskInfo(l.holder.Queue, l.holder.ID)
			if errors.Is(err, asynq.ErrTaskNotFound) || err == nil && info.State != asynq.TaskStateActive {
				return // its next run may be over, too
			}
			l.must(info, err)
			l.must(nil, l.inspect.CancelProcessing(l.holder.ID))
		}
	}
	for name, use := range map[string]func(l *scene){
		"cancel": cancel,
		// asynq gives the holder up and runs it again, while its handler goes on: the new run waits for the old one.
		"cancel in vain": func(l *scene) {
			l.mu.Lock()
			l.heeds = false
			l.mu.Unlock()
			cancel(l)
			l.parked(l.holder, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newScene(t, server.Client(t), t.Name())
			use(l)
			l.end(l.waiters)
		})
	}
}

// Waiters of two queues alternate; a tool is used on the first one's queue.
func TestAToolUsedOnAQueueStrandsNoTask(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, tool := range map[string]struct {
		fate int
		use  func(l *scene, queue string)
	}{
		"delete all": {isGone, func(l *scene, queue string) { l.must(l.inspect.DeleteAllRetryTasks(queue)) }},
		"run all": {runs, func(l *scene, queue string) {
			l.must(l.inspect.RunAllRetryTasks(queue))
			for _, w := range of(l.waiters, queue) {
				l.parked(w, 2)
			}
		}},
		"archive all": {isArchived, func(l *scene, queue string) { l.must(l.inspect.ArchiveAllRetryTasks(queue)) }},
		"archive all and run all": {runs, func(l *scene, queue string) {
			l.must(l.inspect.ArchiveAllRetryTasks(queue))
			l.must(l.inspect.RunAllArchivedTasks(queue))
			for _, w := range of(l.waiters, queue) {
				l.parked(w, 2)
			}
		}},
		"pause and go on": {runs, func(l *scene, queue string) {
			l.must(nil, l.inspect.PauseQueue(queue))
			l.must(nil, l.inspect.UnpauseQueue(queue))
		}},
		"delete the queue": {isGone, func(l *scene, queue string) { l.must(nil, l.inspect.DeleteQueue(queue, true)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newScene(t, server.Client(t), t.Name(), "one", "other")
			queue, other := l.waiters[0].Queue, l.waiters[1].Queue
			tool.use(l, queue)
			if tool.fate == runs {
				l.end(l.waiters)
				return
			}
			l.end(of(l.waiters, other))
			for _, w := range of(l.waiters, queue) {
				if tool.fate == isGone {
					l.gone(w)
				} else {
					l.settled(w, asynq.TaskStateArchived)
				}
			}
		})
	}
}

// A queue is paused while the key is given back: its waiter is next, and runs when the queue goes on.
func TestAQueueResumedAfterTheReleaseStrandsNoTask(t *testing.T) {
	t.Parallel()
	l := newScene(t, redistest.Start(t).Client(t), "paused", "one", "other")
	l.must(nil, l.inspect.PauseQueue(l.waiters[0].Queue))
	close(l.goOn)
	l.settled(l.waiters[0], asynq.TaskStatePending)
	l.must(nil, l.inspect.UnpauseQueue(l.waiters[0].Queue))
	l.finish(l.waiters)
}

// The archive of a task that reached a bound is no dead end: run by hand it waits like any other.
func TestAnArchivedConflictThatIsRunAgainWaitsAndRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	lease := r.hold("order:1")
	strategy := parkAlways()
	strategy.Delay, strategy.Limits, strategy.OnLimit = time.Hour, delayqueue.Limits{Waiters: 1}, archive
	ran := make(chan string, 3)
	r.serve(r.options(strategy), asynq.Config{}, func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ran <- id
		return nil
	})
	first := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
	r.settled(first, asynq.TaskStateRetry)
	full := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
	r.settled(full, asynq.TaskStateArchived)
	if err := r.inspect.RunTask(full.Queue, full.ID); err != nil { // there are still too many waiters
		t.Fatal(err)
	}
	r.events.await(t, 2, ended(middleware.Archive))
	r.settled(full, asynq.TaskStateArchived)
	if err := r.inspect.DeleteTask(first.Queue, first.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.inspect.RunTask(full.Queue, full.ID); err != nil {
		t.Fatal(err)
	}
	r.settled(full, asynq.TaskStateRetry)
	r.giveBack(lease)
	if id := receive(t, ran); id != full.ID {
		t.Errorf("%s ran, want %s", id, full.ID)
	}
}

// A wake is in the hands of the task that it was for. When that one is taken away before a worker fetches it, or its
// queue is paused, no task forwards the wake: the others' own timers bring them, by default a second after a lease of
// the holder would have ended.
func TestAWakeThatGoesWithItsTaskGoesToTheNext(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(r *rig, woken delayqueue.Task) error{
		"deleted":  func(r *rig, w delayqueue.Task) error { return r.inspect.DeleteTask(w.Queue, w.ID) },
		"archived": func(r *rig, w delayqueue.Task) error { return r.inspect.ArchiveTask(w.Queue, w.ID) },
		"paused":   func(*rig, delayqueue.Task) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const others = 3
				lease := r.hold("order:1")
				ran := make(chan string, others+1)
				cfg := asynq.Config{Concurrency: 4, Queues: map[string]int{"default": 1, "other": 1}}
				r.serve(r.options(parkAlways()), cfg, func(ctx context.Context, _ *asynq.Task) error {
					queue, _ := asynq.GetQueueName(ctx)
					ran <- queue
					return nil
				})
				woken := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
				r.settled(woken, asynq.TaskStateRetry)
				for range others {
					r.settled(r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3), asynq.Queue("other")), asynq.TaskStateRetry)
				}
				if err := r.inspect.PauseQueue("default"); err != nil {
					r.Fatal(err)
				}
				r.giveBack(lease)
				released := time.Now()
				r.settled(woken, asynq.TaskStatePending)
				if err := use(r, woken); err != nil {
					r.Fatal(err)
				}
				for range others {
					if queue := receive(r.T, ran); queue != "other" {
						r.Errorf("a task of queue %s ran", queue)
					}
				}
				took := time.Since(released)
				if took > 3*time.Second {
					r.Errorf("the others ran after %v, want within 3s, and not by their timers after 31s", took)
				}
				r.Logf("the others ran %v after the release", took)
				if err := r.inspect.UnpauseQueue("default"); err != nil {
					r.Fatal(err)
				}
				if name == "paused" && receive(r.T, ran) != "default" {
					r.Error("the task of the paused queue did not run when it went on")
				}
			})
		})
	}
}
