package attach_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// goesOn checks that nobody stops a run for a while.
func (o *orders) goesOn(r run) {
	o.Helper()
	select {
	case <-r.ctx.Done():
		o.Fatalf("%s is stopped: %v", r.kind, context.Cause(r.ctx))
	case <-time.After(200 * time.Millisecond):
	}
}

// An older task comes back once a newer one runs, because it was retried. It must not take the place of that one.
func TestAnOlderSuccessorDoesNotStopANewerOne(t *testing.T) {
	for name, opts := range map[string][]asynq.Option{"by its handler": nil, "the latest": {attach.Latest{}}} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, time.Minute, true, func(o *orders) {
				first := o.put("cancel", "1", opts...)
				older := o.next("cancel1")
				ok(o.T, o.inspect.PauseQueue("default"))
				o.put("cancel", "2", opts...)
				older.result <- errors.New("fails")
				o.parked(first) // it waits for its retry
				ok(o.T, o.inspect.UnpauseQueue("default"))
				newer := o.next("cancel2")
				ok(o.T, o.inspect.RunTask(first.Queue, first.ID))
				o.until("it is refused", func() bool {
					info, err := o.inspect.GetTaskInfo(first.Queue, first.ID)
					return err == nil && info.State == asynq.TaskStateRetry && info.LastErr == line.WaitText
				})
				o.goesOn(newer)
				newer.result <- nil
				if opts == nil {
					o.next("cancel1").result <- nil
				}
				o.gone(first)
			})
		})
	}
}

// Its worker has died, so it comes back once a newer one runs, in the same attempt.
func TestASuccessorThatWasTakenBackDoesNotStopANewerOne(t *testing.T) {
	everywhere(t, time.Minute, true, func(o *orders) {
		first := o.put("cancel", "1")
		older := o.next("cancel1")
		ok(o.T, o.inspect.PauseQueue("default"))
		task, client := line.Task{Queue: first.Queue, ID: first.ID}, o.attached.Client()
		name := client.HGet(o.Context(), task.Hash(), asynqwire.PendingSinceField).Val()
		left, err := (*line.Engine)(o.attached.Queue()).TakeBack(o.Context(), line.Remnant{Task: task, Run: name, Silent: true}, 3,
			func([]string) (bool, error) { return true, nil })
		if err != nil || left != line.Back {
			o.Fatalf("it is %v, %v", left, err)
		}
		pending := asynqwire.Pending(first.Queue)
		ok(o.T, client.LRem(o.Context(), pending, 1, first.ID).Err()) // it is fetched later
		older.result <- nil                                           // the worker lives after all, and gives the key back
		ok(o.T, o.inspect.UnpauseQueue("default"))
		o.put("cancel", "2")
		newer := o.next("cancel2")
		ok(o.T, client.LPush(o.Context(), pending, first.ID).Err())
		o.parked(first)
		o.goesOn(newer)
		newer.result <- nil
		o.next("cancel1").result <- nil
		o.gone(first)
	})
}

// A message may come late, or from another Redis database: channels know no databases.
func TestAMessageOfATaskThatDoesNotWaitIsIgnored(t *testing.T) {
	everywhere(t, time.Minute, true, func(o *orders) {
		o.put("allocate", "1")
		allocation := o.next("allocate1")
		ended := o.put("audit", "")
		o.parked(ended)
		ok(o.T, o.inspect.ArchiveTask(ended.Queue, ended.ID))
		engine := (*line.Engine)(o.attached.Queue())
		for _, id := range []string{"unknown", ended.ID} {
			ok(o.T, engine.TellHolders(o.Context(), holdings.Supersession{Keys: []string{theOrder}, Group: "allocation", Queue: "default", ID: id}))
		}
		o.goesOn(allocation)
		cancel := o.put("cancel", "")
		<-allocation.ctx.Done()
		if cause, is := errors.AsType[*middleware.CancelledError](context.Cause(allocation.ctx)); !is || cause.Next.ID != cancel.ID {
			o.Errorf("it is stopped with %v", context.Cause(allocation.ctx))
		}
		allocation.result <- allocation.ctx.Err()
		o.next("cancel").result <- nil
	})
}

// A strategy of users that gives no Grace has the usual one.
type hasty struct{ middleware.Requeue }

func (hasty) Decide(middleware.Conflict) middleware.Decision {
	return middleware.Decision{Outcome: middleware.Park, Supersede: &middleware.Supersede{Group: "test"}}
}

func TestAStrategyWithoutGraceHasTheUsualOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 2}, attach.Options{Strategy: hasty{}})
	began, ends := make(chan context.Context, 2), make(chan error)
	r.serve(a.Client(), a.Config(), a.Lock(ofOrder)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		began <- ctx
		return <-ends
	})))
	first := r.enqueue("order:7")
	holder := receive(t, began)
	r.enqueue("order:7")
	<-holder.Done()
	(&orders{rig: r}).goesOn(run{ctx: t.Context()})
	if lease, _ := locking.FromContext(holder); lease.Err() != nil {
		t.Errorf("its lease has %v", lease.Err())
	}
	ends <- holder.Err()
	r.settled(first, asynq.TaskStateArchived)
	receive(t, began)
	ends <- nil
}

// Its handler panics, and asynq retries it as after any panic. The successor has run before.
func TestASupersededHandlerThatPanicsIsRetriedBehindItsSuccessor(t *testing.T) {
	everywhere(t, time.Minute, false, func(o *orders) {
		first := o.put("allocate", "1")
		allocation := o.next("allocate1")
		o.put("cancel", "")
		<-allocation.ctx.Done()
		allocation.result <- errPanic
		o.next("cancel").result <- nil
		info := o.settled(first, asynq.TaskStateRetry)
		if info.Retried != 1 {
			o.Errorf("it is %+v", info)
		}
	})
}

// Tasks in order are not overtaken, and their group cannot be set.
func TestATaskInOrderIsNotSuperseded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 2}, attach.Options{Strategy: middleware.Requeue{Order: middleware.FIFO}})
	if _, err := a.LockWith(attach.LockOptions{Key: ofOrder, Group: "g"}); err == nil || !strings.Contains(err.Error(), "in order no task is superseded") {
		t.Errorf("a group in order: %v", err)
	}
	began, ends := make(chan context.Context, 2), make(chan error)
	r.serve(a.Client(), a.Config(), a.Lock(ofOrder)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		began <- ctx
		return <-ends
	})))
	r.enqueue("order:7")
	holder := receive(t, began)
	waits := r.enqueue("order:7")
	r.settled(waits, asynq.TaskStateRetry)
	ok(t, (*line.Engine)(a.Queue()).TellHolders(t.Context(), holdings.Supersession{
		Keys: []string{theOrder}, Group: "test", Queue: waits.Queue, ID: waits.ID,
	}))
	(&orders{rig: r}).goesOn(run{ctx: holder})
	ends <- nil
	receive(t, began)
	ends <- nil
}
