package middleware_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
)

// waiting is a task that waits on its last attempt for a key that another holder has.
type waiting struct {
	*rig
	task  delayqueue.Task
	lease *locking.Lease
	opts  []asynq.Option
	ran   chan delayqueue.Task
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
				r.serve(r.options(strategy), asynq.Config{}, w.handle)
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
	task, err := delayqueue.TaskOf(ctx)
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
				if e := r.events.await(r, 1, parked)[0]; e.Task != before {
					r.Errorf("%v is parked, want %v", e.Task, before)
				}
				if info := r.info(w.task); info.State != asynq.TaskStateRetry || info.Retried != 0 || info.MaxRetry != retries || info.Retention != time.Hour {
					r.Errorf("it waits as %+v", info)
				}
				if _, err := r.inspect.GetTaskInfo(before.Queue, before.ID); !errors.Is(err, asynq.ErrTaskNotFound) {
					r.Errorf("in its own queue it is still: %v", err)
				}
				if w, err := r.queue.Find(r.Context(), w.task); err != nil || w.Key != "order:1" || w.Conflicts != 1 {
					r.Errorf("it waits as %+v, %v", w, err)
				}
				w.refused(asynq.ErrDuplicateTask)
				w.runs()
				r.settled(w.task, asynq.TaskStateCompleted)
			})
		})
	}
}
