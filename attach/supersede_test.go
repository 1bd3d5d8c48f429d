package attach_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// orders is a server for tasks of one order: allocations and audits, and cancellations that supersede allocations.
type orders struct {
	*rig
	attached *attach.Attached
	client   redis.UniversalClient
	began    chan run
	ended    chan middleware.Event // of runs
}

// run is a run under way. Its handler returns what it gets.
type run struct {
	ctx    context.Context
	kind   string
	lease  *locking.Lease
	token  int64
	result chan error
}

// errPanic has a handler panic.
var errPanic = errors.New("panic")

// theOrder is the key of all tasks. Keys may be of any bytes.
const theOrder = "order:\xff7"

func ofOrder(context.Context, *asynq.Task) ([]string, error) { return []string{theOrder}, nil }

// everywhere runs a test in each place where tasks and locks may be. The allocations are deleted when they are superseded if discard.
func everywhere(t *testing.T, grace time.Duration, discard bool, test func(o *orders)) {
	t.Helper()
	t.Parallel()
	for name, place := range map[string]struct {
		locker    func(t *testing.T) locking.Locker
		gate      bool
		cluster   bool
		namespace string
	}{
		"one Redis": {}, "a Gate": {gate: true}, "locks elsewhere": {locker: func(t *testing.T) locking.Locker { return elsewhere(t) }},
		"Redlock": {locker: onThree}, "a Cluster": {cluster: true}, "a namespace": {namespace: "shop-a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var client redis.UniversalClient
			if place.cluster {
				client = redistest.StartCluster(t, 3).Client(t)
			} else {
				client = redistest.Start(t).Client(t)
			}
			o := &orders{client: client, began: make(chan run, 10), ended: make(chan middleware.Event, 100)}
			opts := attach.Options{
				Logger: slog.New(slog.DiscardHandler), Namespace: place.namespace, NamespaceTasks: place.namespace != "",
				Observer: func(_ context.Context, e middleware.Event) {
					if e.Kind == middleware.Ended {
						o.ended <- e
					}
				},
			}
			if place.locker != nil {
				opts.Locker = place.locker(t)
			}
			if place.gate {
				single, err := locking.NewSingle(client, locking.SingleOptions{})
				ok(t, err)
				gate := locking.NewGate(single, locking.GateOptions{})
				t.Cleanup(func() { ok(t, single.Close()) })
				opts.Locker, opts.RedisKeys = gate, single.RedisKeys
			}
			var err error
			o.attached, err = attach.New(client, asynq.Config{Concurrency: 6, LogLevel: asynq.FatalLevel}, opts)
			ok(t, err)
			t.Cleanup(func() { ok(t, o.attached.Close()) })
			o.rig = &rig{T: t, inspect: asynq.NewInspectorFromRedisClient((*line.Engine)(o.attached.Queue()).Client())}
			mux := asynq.NewServeMux()
			for kind, lock := range map[string]attach.LockOptions{
				"allocate": {Group: "allocation"}, "audit": {},
				"cancel": {Group: "allocation", Strategy: middleware.Supersede{Grace: grace}},
			} {
				lock.Key = ofOrder
				if discard {
					lock.OnSuperseded = middleware.Discard
				}
				locked, err := o.attached.LockWith(lock)
				ok(t, err)
				mux.Handle(kind, locked(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					lease, _ := locking.FromContext(ctx)
					token, err := lease.Fence(ctx)
					ok(t, err)
					r := run{ctx, kind + string(task.Payload()), lease, token, make(chan error)}
					o.began <- r
					if err := <-r.result; !errors.Is(err, errPanic) {
						return err
					}
					panic(errPanic)
				})))
			}
			o.serve(o.attached.Client(), o.attached.Config(), mux)
			test(o)
		})
	}
}

// onThree returns a Locker on three servers.
func onThree(t *testing.T) locking.Locker {
	t.Helper()
	nodes := make([]*redis.Options, 3)
	for i := range nodes {
		nodes[i] = &redis.Options{Addr: redistest.Start(t).Addr()}
	}
	redlock, err := locking.NewRedlock(nodes, locking.RedlockOptions{Guard: locking.GuardOff})
	ok(t, err)
	t.Cleanup(func() { ok(t, redlock.Close()) })
	return redlock
}

func (o *orders) put(kind, payload string, opts ...asynq.Option) *asynq.TaskInfo {
	o.Helper()
	info, err := o.attached.Producer(nil).EnqueueContext(o.Context(), asynq.NewTask(kind, []byte(payload)),
		append([]asynq.Option{attach.Keys(theOrder), asynq.MaxRetry(3)}, opts...)...)
	ok(o.T, err)
	return info
}

// next returns the next run, which must be of this kind.
func (o *orders) next(kind string) run {
	o.Helper()
	r := receive(o, o.began)
	if r.kind != kind {
		o.Fatalf("%s runs, want %s", r.kind, kind)
	}
	return r
}

// parked waits until a task is parked.
func (o *orders) parked(t *asynq.TaskInfo) {
	o.Helper()
	o.settled(t, asynq.TaskStateRetry)
}

// gone waits until a task is gone.
func (o *orders) gone(t *asynq.TaskInfo) {
	o.Helper()
	o.until("task "+t.ID+" is gone", func() bool {
		_, err := o.inspect.GetTaskInfo(t.Queue, t.ID)
		return errors.Is(err, asynq.ErrTaskNotFound)
	})
}

// The holder is told, cleans up under its lock and ends without a retry. Then its successor runs, before those that have waited longer.
func TestASuccessorStopsTheHolderAndRunsNext(t *testing.T) {
	everywhere(t, time.Minute, false, func(o *orders) {
		first := o.put("allocate", "1")
		allocation := o.next("allocate1")
		waiting := o.put("audit", "")
		o.parked(waiting)
		cancel := o.put("cancel", "")
		<-allocation.ctx.Done()
		cause, isCancelled := errors.AsType[*middleware.CancelledError](context.Cause(allocation.ctx))
		if !isCancelled || cause.Next.ID != cancel.ID || cause.Why != "superseded" {
			o.Errorf("the context of the holder ends with %v", context.Cause(allocation.ctx))
		}
		if err := allocation.lease.Err(); err != nil {
			o.Errorf("it cleans up without its lock: %v", err)
		}
		o.parked(cancel)
		allocation.result <- errors.New("undone")
		o.next("cancel").result <- nil
		o.next("audit").result <- nil
		got := o.settled(first, asynq.TaskStateArchived)
		if got.Retried != 0 || !strings.HasPrefix(got.LastErr, "railtoken: cancelled by task default/"+cancel.ID+": superseded") {
			o.Errorf("it has %d retries, and its error is %q", got.Retried, got.LastErr)
		}
		o.gone(cancel)
		e := receive(o, o.ended)
		for e.Task.ID != first.ID {
			e = receive(o, o.ended)
		}
		if c, is := errors.AsType[*middleware.CancelledError](e.Err); !is || c.Err == nil || c.Err.Error() != "undone" {
			o.Errorf("the event has %v", e.Err)
		}
	})
}

// A holder that has done its work is done, and one that was committed.
func TestWhoSucceedsAlthoughSupersededIsDone(t *testing.T) {
	everywhere(t, time.Minute, false, func(o *orders) {
		for _, committed := range []bool{true, false} {
			first := o.put("allocate", "1", asynq.Retention(time.Hour))
			allocation := o.next("allocate1")
			o.put("cancel", "")
			<-allocation.ctx.Done()
			if committed {
				allocation.lease.MarkCommitted()
				allocation.result <- allocation.ctx.Err()
			} else {
				allocation.result <- nil
			}
			o.next("cancel").result <- nil
			o.settled(first, asynq.TaskStateCompleted)
		}
	})
}

// A handler that does not return loses its keys after Grace, and its work does not count.
func TestAHandlerThatIgnoresItsSuccessorIsDeposed(t *testing.T) {
	everywhere(t, 100*time.Millisecond, true, func(o *orders) {
		for _, late := range []error{nil, errors.New("late")} {
			first := o.put("allocate", "1")
			allocation := o.next("allocate1")
			o.put("cancel", "")
			cancel := o.next("cancel")
			loss, lost := errors.AsType[*locking.LostError](allocation.lease.Err())
			if !lost || loss.Reason != locking.LossDeposed {
				o.Errorf("the lease of the holder has %v", allocation.lease.Err())
			}
			if cancel.lease.Err() != nil {
				o.Errorf("its successor has no lock: %v", cancel.lease.Err())
			}
			if allocation.token >= cancel.token {
				o.Errorf("its token is %d, and that of its successor %d", allocation.token, cancel.token)
			}
			allocation.result <- late
			o.gone(first)
			if cancel.lease.Err() != nil {
				o.Errorf("the end of the holder costs its successor the lock: %v", cancel.lease.Err())
			}
			cancel.result <- nil
		}
	})
}

// Other groups go on. The successor waits, before the others all the same.
func TestAHolderOfAnotherGroupGoesOn(t *testing.T) {
	everywhere(t, 10*time.Millisecond, false, func(o *orders) {
		o.put("audit", "")
		audit := o.next("audit")
		o.parked(o.put("allocate", "1"))
		o.parked(o.put("cancel", ""))
		<-time.After(100 * time.Millisecond) // many times Grace
		if audit.ctx.Err() != nil || audit.lease.Err() != nil {
			o.Errorf("it was stopped: %v, %v", context.Cause(audit.ctx), audit.lease.Err())
		}
		audit.result <- nil
		o.next("cancel").result <- nil
		o.next("allocate1").result <- nil
	})
}

// The producer tells the holder itself, whether or not a slot is free for its task.
func TestAProducerSupersedesAtOnce(t *testing.T) {
	everywhere(t, time.Minute, true, func(o *orders) {
		first := o.put("allocate", "1")
		allocation := o.next("allocate1")
		ok(o.T, o.inspect.PauseQueue("default"))
		cancel := o.put("cancel", "", attach.WhenHeld(middleware.Supersede{Grace: time.Minute, Group: "allocation"}))
		<-allocation.ctx.Done()
		o.parked(cancel)
		allocation.result <- allocation.ctx.Err()
		ok(o.T, o.inspect.UnpauseQueue("default"))
		o.next("cancel").result <- nil
		o.gone(first)
	})
}

// Of several successors the newest stays, in each way of enqueuing them.
func TestOfSeveralSuccessorsTheNewestRuns(t *testing.T) {
	supersede := attach.WhenHeld(middleware.Supersede{Grace: time.Minute, Group: "allocation"})
	for name, opts := range map[string][]asynq.Option{
		"by its handler": nil, "by the producer": {supersede}, "the latest": {attach.Latest{}, supersede}, "the latest by its handler": {attach.Latest{}},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, time.Minute, true, func(o *orders) {
				o.put("allocate", "1")
				allocation := o.next("allocate1")
				audit := o.put("audit", "")
				for _, n := range []string{"1", "2", "3"} {
					o.parked(o.put("cancel", n, opts...))
				}
				<-allocation.ctx.Done()
				o.until("the others have ended", func() bool {
					waiting, err := o.inspect.ListRetryTasks("default")
					return err == nil && len(waiting) == 2
				})
				allocation.result <- allocation.ctx.Err()
				last := o.next("cancel3")
				o.parked(o.put("cancel", "4", opts...))
				<-last.ctx.Done() // one that runs is superseded, too
				last.result <- last.ctx.Err()
				o.next("cancel4").result <- nil
				o.next("audit").result <- nil
				o.gone(audit)
			})
		})
	}
}

func TestSupersedeIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{}, attach.Options{})
	for name, o := range map[string]attach.LockOptions{
		"Supersede.Grace is -1s: it cannot be negative": {Strategy: middleware.Supersede{Grace: -time.Second}},
		"use middleware.Archive or middleware.Discard":  {OnSuperseded: middleware.Retry},
	} {
		o.Key = ofOrder
		if _, err := a.LockWith(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: error %v, want one with %q", o, err, name)
		}
	}
	results := make(chan error, 2)
	r.serve(a.Client(), a.Config(), a.Lock(ofOrder)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		for _, opts := range [][]asynq.Option{{}, {attach.Latest{}}} {
			_, err := a.Producer(nil).EnqueueContext(ctx, asynq.NewTask("test", nil),
				append(opts, attach.Keys(theOrder), attach.WhenHeld(middleware.Supersede{}))...)
			results <- err
		}
		return nil
	})))
	_, err := a.Producer(nil).EnqueueContext(t.Context(), asynq.NewTask("test", nil), attach.Keys(theOrder), attach.WhenHeld(middleware.Supersede{}))
	ok(t, err)
	for range 2 {
		if err := receive(t, results); !errors.Is(err, middleware.ErrKey) || !strings.Contains(err.Error(), "leave out Supersede") {
			t.Errorf("for its own key a handler gets %v", err)
		}
	}
	p := a.Producer(nil)
	for text, opts := range map[string][]asynq.Option{
		"cannot be negative": {attach.WhenHeld(middleware.Supersede{Grace: -1})},
		"runs later":         {attach.WhenHeld(middleware.Supersede{}), attach.Latest{Quiet: time.Second}},
	} {
		if _, err := p.EnqueueContext(t.Context(), asynq.NewTask("test", nil), append(opts, attach.Keys(theOrder))...); err == nil ||
			!strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want one with %q", err, text)
		}
	}
}
