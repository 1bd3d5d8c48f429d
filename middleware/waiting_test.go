package middleware_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/locking"
)

// waiting is a task that waits on its last attempt for a key that another holder has.
type waiting struct {
	*rig
	task  delayqueue.Task
	lease *locking.Lease
	opts  []asynq.Option
	ran   chan delayqueue.Task
	left  time.Duration // of the time of the last run
}

// again enqueues a task with the options of the one that waits.
func (w *waiting) again() error {
	_, err := w.tasks.Enqueue(asynq.NewTask("test", []byte(`{"key":"order:1","n":0}`)), w.opts...)
	return err
}

// refused fails the test unless asynq refuses a task with the same options for a reason.
func (w *waiting) refused(want error) {
	w.Helper()
	if err := w.again(); !errors.Is(err, want) {
		w.Errorf("one more is enqueued with %v, want %v", err, want)
	}
}

// runs gives the key back and waits until the task runs.
func (w *waiting) runs() {
	w.Helper()
	w.giveBack(w.lease)
	if got := receive(w.T, w.ran); got != w.task {
		w.Errorf("%v ran, want %v", got, w.task)
	}
}

func TestALastAttemptThatWaitsIsAsynqsTaskStill(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts []asynq.Option
		then func(w *waiting)
	}{
		"plain": {then: func(w *waiting) {
			w.runs()
			w.gone(w.task)
		}},
		"unique": {[]asynq.Option{asynq.Unique(time.Hour)}, func(w *waiting) {
			w.refused(asynq.ErrDuplicateTask)
			w.runs()
			w.gone(w.task)
			w.refused(nil)
		}},
		"with an ID": {[]asynq.Option{asynq.TaskID("mine")}, func(w *waiting) {
			w.refused(asynq.ErrTaskIDConflict)
			w.runs()
			w.gone(w.task)
			w.refused(nil)
		}},
		"retained": {[]asynq.Option{asynq.Retention(time.Hour)}, func(w *waiting) {
			w.runs()
			if info := w.settled(w.task, asynq.TaskStateCompleted); info.Retention != time.Hour {
				w.Errorf("it is kept for %v", info.Retention)
			}
		}},
		"with a deadline": {[]asynq.Option{asynq.Deadline(time.Now().Add(100 * 365 * 24 * time.Hour))}, func(w *waiting) {
			deadline := w.info(w.task).Deadline
			w.runs()
			if left := time.Until(deadline); left < 24*time.Hour {
				w.Errorf("its deadline is in %v", left)
			}
		}},
		"with a timeout": {[]asynq.Option{asynq.Timeout(10 * time.Second)}, func(w *waiting) {
			time.Sleep(time.Minute) // its time is that of its run
			w.runs()
			if w.left != 10*time.Second {
				w.Errorf("its run has %v", w.left)
			}
		}},
		"delayed": {[]asynq.Option{asynq.ProcessIn(30 * time.Second)}, func(w *waiting) {
			w.runs()
			w.gone(w.task)
		}},
		"unique for less than it waits": {[]asynq.Option{asynq.Unique(30 * time.Second)}, func(w *waiting) {
			time.Sleep(5 * time.Minute)
			w.refused(asynq.ErrDuplicateTask)
			w.runs()
			w.gone(w.task)
			w.refused(nil)
		}},
		"in a paused queue": {then: func(w *waiting) {
			w.ok(w.inspect.PauseQueue(w.task.Queue))
			w.giveBack(w.lease)
			time.Sleep(time.Minute)
			if len(w.ran) > 0 {
				w.Error("it ran in a paused queue")
			}
			w.ok(w.inspect.UnpauseQueue(w.task.Queue))
			began := time.Now()
			receive(w.T, w.ran)
			if took := time.Since(began); took > time.Second {
				w.Errorf("it ran %v after the pause", took)
			}
		}},
		"run by hand": {then: func(w *waiting) {
			w.ok(w.inspect.RunTask(w.task.Queue, w.task.ID))
			w.events.await(w, 2, parked)
			w.settled(w.task, asynq.TaskStateRetry)
			w.runs()
		}},
		"archived by hand": {[]asynq.Option{asynq.Unique(time.Hour)}, func(w *waiting) {
			w.ok(w.inspect.ArchiveTask(w.task.Queue, w.task.ID))
			w.refused(asynq.ErrDuplicateTask) // as of any archived task
			w.ok(w.inspect.RunTask(w.task.Queue, w.task.ID))
			w.events.await(w, 2, parked)
			w.runs()
		}},
		"deleted by hand": {[]asynq.Option{asynq.Unique(time.Hour)}, func(w *waiting) {
			w.ok(w.inspect.DeleteTask(w.task.Queue, w.task.ID))
			w.refused(nil)
			w.events.await(w, 2, parked)
		}},
		"cancelled by hand": {then: func(w *waiting) {
			w.ok(w.inspect.CancelProcessing(w.task.ID)) // it does not run
			w.runs()
			w.gone(w.task)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				w := &waiting{rig: r, lease: r.hold("order:1"), opts: append(tt.opts, asynq.MaxRetry(0)), ran: make(chan delayqueue.Task, 10)}
				strategy := parkAlways()
				strategy.Delay = time.Hour
				r.serve(r.options(strategy), asynq.Config{TaskCheckInterval: lookSeldom}, w.handle)
				w.task = r.enqueue(payload{Key: "order:1"}, w.opts...)
				r.events.await(r, 1, parked)
				if info := r.info(w.task); info.State != asynq.TaskStateRetry || info.Retried != 0 || info.MaxRetry != 0 {
					r.Errorf("it waits as %+v", info)
				}
				tt.then(w)
				if info, err := r.inspect.GetQueueInfo("default"); err != nil || info.FailedTotal > 0 || info.Archived > 0 {
					r.Errorf("%+v, %v; want nothing failed or archived", info, err)
				}
			})
		})
	}
}

func (w *waiting) handle(ctx context.Context, _ *asynq.Task) error {
	id, err := line.TaskOf(ctx)
	task := delayqueue.Task(id)
	if deadline, ok := ctx.Deadline(); ok {
		w.left = time.Until(deadline)
	}
	w.ran <- task
	return err
}

func (w *waiting) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// The task that asynq makes of a group has keys like any other.
func TestAGroupThatFindsItsKeyHeldWaits(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		lease := r.hold("order:1")
		cfg := asynq.Config{GroupMaxSize: 3, GroupAggregator: asynq.GroupAggregatorFunc(func(_ string, tasks []*asynq.Task) *asynq.Task {
			return asynq.NewTask("group", tasks[0].Payload(), asynq.MaxRetry(0))
		})}
		ran := make(chan string, 3)
		r.serve(r.options(parkAlways()), cfg, func(_ context.Context, task *asynq.Task) error {
			ran <- task.Type()
			return nil
		})
		for range 3 {
			r.enqueue(payload{Key: "order:1"}, asynq.Group("g"))
		}
		r.events.await(r, 1, parked)
		r.giveBack(lease)
		if got := receive(r.T, ran); got != "group" {
			r.Errorf("%s ran", got)
		}
	})
}

// What asynq's Scheduler enqueues is a task like any other: while it waits it refuses its own next firing, when it is
// unique.
func TestAScheduledTaskWaitsAndRefusesItsNext(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		lease := r.hold("order:1")
		ran := make(chan delayqueue.Task, 10)
		r.serve(r.options(parkAlways()), asynq.Config{}, (&waiting{rig: r, ran: ran}).handle)
		fired := make(chan error, 1000)
		scheduler := asynq.NewSchedulerFromRedisClient(r.client, &asynq.SchedulerOpts{
			LogLevel: asynq.FatalLevel, PostEnqueueFunc: func(_ *asynq.TaskInfo, err error) { fired <- err },
		})
		if _, err := scheduler.Register("@every 10s", asynq.NewTask("test", []byte(`{"key":"order:1"}`)), asynq.Unique(time.Hour), asynq.MaxRetry(0)); err != nil {
			r.Fatal(err)
		}
		if err := scheduler.Start(); err != nil {
			r.Fatal(err)
		}
		r.Cleanup(scheduler.Shutdown)
		if err := receive(r.T, fired); err != nil {
			r.Fatal(err)
		}
		r.events.await(r, 1, parked)
		if err := receive(r.T, fired); !errors.Is(err, asynq.ErrDuplicateTask) {
			r.Errorf("while the first waits the next is fired with %v", err)
		}
		r.giveBack(lease)
		receive(r.T, ran)
		if err := receive(r.T, fired); err != nil {
			r.Errorf("after it has run the next is fired with %v", err)
		}
		receive(r.T, ran)
	})
}

// asynq's way to tell that a task has failed for good, in an ErrorHandler: waiting makes it neither earlier nor later.
func TestRetriesAreExhaustedExactlyWhenAsynqsAre(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"without conflicts": false, "with conflicts": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const retries = 2
				told := make(chan [2]int, 10)
				cfg := asynq.Config{
					RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 5 * time.Second },
					ErrorHandler: asynq.ErrorHandlerFunc(func(ctx context.Context, _ *asynq.Task, _ error) {
						retried, _ := asynq.GetRetryCount(ctx)
						most, _ := asynq.GetMaxRetry(ctx)
						told <- [2]int{retried, most}
					}),
				}
				strategy := parkAlways()
				strategy.Delay = time.Hour
				var lease *locking.Lease
				if waits {
					lease = r.hold("order:1")
				}
				r.serve(r.options(strategy), cfg, func(context.Context, *asynq.Task) error { return errors.New("no") })
				task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(retries))
				for n := range retries + 1 {
					if waits {
						r.events.await(r, n+1, parked)
						r.giveBack(lease)
					}
					if got := receive(r.T, told); got != [2]int{n, retries} {
						r.Errorf("failure %d is told of as %v", n+1, got)
					}
					if n < retries && waits {
						r.events.await(r, n+1, released)
						lease = r.hold("order:1")
					}
				}
				r.settled(task, asynq.TaskStateArchived)
				if len(told) > 0 {
					r.Errorf("told of %d more", len(told))
				}
			})
		})
	}
}

// Conflicts wait in a queue with workers of its own, and run there, as the tasks that they were.
func TestAConflictMovesToTheQueueOfConflicts(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"its last attempt": 0, "an earlier one": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				w := &waiting{rig: r, lease: r.hold("order:1"), opts: []asynq.Option{asynq.MaxRetry(retries), asynq.Unique(time.Hour), asynq.Retention(time.Hour)}, ran: make(chan delayqueue.Task, 10)}
				strategy := parkAlways()
				strategy.Delay, strategy.Queue = time.Hour, "slow"
				opts := r.options(strategy)
				r.serve(opts, asynq.Config{}, w.handle)
				r.serve(opts, asynq.Config{Queues: map[string]int{"slow": 1}}, w.handle)
				before := r.enqueue(payload{Key: "order:1"}, w.opts...)
				w.task = delayqueue.Task{Queue: "slow", ID: before.ID}
				if e := r.events.await(r, 1, parked)[0]; e.Task != w.task {
					r.Errorf("%v is parked, want %v", e.Task, w.task)
				}
				if info := r.info(w.task); info.State != asynq.TaskStateRetry || info.Retried != 0 || info.MaxRetry != retries || info.Retention != time.Hour {
					r.Errorf("it waits as %+v", info)
				}
				if _, err := r.inspect.GetTaskInfo(before.Queue, before.ID); !errors.Is(err, asynq.ErrTaskNotFound) {
					r.Errorf("in its own queue it is still: %v", err)
				}
				if w, err := r.queue.Inspector().Find(r.Context(), w.task); err != nil || w.Key != "order:1" || w.Conflicts != 1 {
					r.Errorf("it waits as %+v, %v", w, err)
				}
				w.refused(asynq.ErrDuplicateTask)
				w.runs()
				r.settled(w.task, asynq.TaskStateCompleted)
			})
		})
	}
}
