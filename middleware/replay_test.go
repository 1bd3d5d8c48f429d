package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// refusedAgain wakes a task, which is the next waiter of a key that is still held, and waits until its run has ended.
func (r *rig) refusedAgain(task delayqueue.Task, key string, outcome middleware.Outcome) {
	r.Helper()
	r.settled(task, asynq.TaskStateRetry)
	n := len(r.events.await(r, 0, ended(outcome)))
	woken, err := r.queue.Wake(context.Background(), key, delayqueue.WakeOptions{})
	if err != nil || len(woken.Tasks) == 0 && !woken.Pending {
		r.Fatalf("woke %+v, %v", woken, err)
	}
	if outcome == middleware.Park {
		r.settled(task, asynq.TaskStateRetry)
		return
	}
	r.events.await(r, n+1, ended(outcome))
}

// reason returns why a task is archived.
func (r *rig) reason(t delayqueue.Task) *middleware.ConflictError {
	r.Helper()
	conflict, err := middleware.ParseConflict(r.settled(t, asynq.TaskStateArchived).Result)
	if err != nil {
		r.Fatal(err)
	}
	return conflict
}

// replayAll replays what reached a bound in the queue.
func (r *rig) replayAll(opts middleware.ReplayOptions) int {
	r.Helper()
	if opts.Queue == "" {
		opts.Queue = "default"
	}
	n, err := middleware.ReplayConflicts(context.Background(), r.queue, opts)
	if err != nil {
		r.Fatal(err)
	}
	return n
}

func TestATaskAtAnyLimitIsArchivedAndCanBeReplayed(t *testing.T) {
	t.Parallel()
	for bound, tt := range map[delayqueue.Limit]struct {
		bounds    delayqueue.Limits
		waits     int // tasks that wait before it
		again     int // how often it parks before
		conflicts int
	}{
		delayqueue.ConflictsLimit: {bounds: delayqueue.Limits{Conflicts: 2}, again: 2, conflicts: 3},
		delayqueue.AgeLimit:       {bounds: delayqueue.Limits{Age: time.Millisecond}, again: 1, conflicts: 2},
		delayqueue.WaitersLimit:   {bounds: delayqueue.Limits{Waiters: 2}, waits: 2, conflicts: 1},
	} {
		t.Run(string(bound), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.Start(t).Client(t))
			lease := r.hold("order:1")
			fence, err := lease.Fence(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ran := make(chan int, 10)
			strategy := middleware.Requeue{Delay: time.Hour, Limits: tt.bounds}
			if bound == delayqueue.WaitersLimit {
				strategy.OnLimit = archive
			}
			r.serve(r.options(strategy), asynq.Config{Concurrency: 2}, func(ctx context.Context, _ *asynq.Task) error {
				n, _ := asynq.GetRetryCount(ctx)
				ran <- n
				return nil
			})
			for i := range tt.waits {
				r.settled(r.enqueue(payload{Key: "order:1", N: i}), asynq.TaskStateRetry)
			}
			task := r.enqueue(payload{Key: "order:1", N: 7}, asynq.TaskID("at its bound"), asynq.MaxRetry(3))
			for i := range tt.again {
				outcome := middleware.Park
				if i == tt.again-1 {
					outcome = middleware.Archive
				}
				r.refusedAgain(task, "order:1", outcome)
			}
			got := r.reason(task)
			if got.Key != "order:1" || got.Limit != bound || got.Conflicts != tt.conflicts || got.Task != task || got.Type != "test" {
				t.Errorf("the reason is %+v", got)
			}
			if got.Holder.Label != "the-holder" || got.Holder.Fence != fence || got.Holder.Since.IsZero() || got.Held <= 0 || got.Held > limit {
				t.Errorf("of the holder it says %+v, held for %v", got.Holder, got.Held)
			}
			if tt.again > 0 && (got.Waited <= 0 || got.Waited > limit) {
				t.Errorf("it waited %v", got.Waited)
			}
			if _, err := r.queue.Inspector().Find(t.Context(), task); !errors.Is(err, delayqueue.ErrNotWaiting) {
				t.Errorf("it waits still: %v", err)
			}

			if bound != delayqueue.WaitersLimit { // while the key is held it waits again, with a new count
				if err := r.queue.Inspector().Replay(t.Context(), task); err != nil {
					t.Fatal(err)
				}
				if info := r.settled(task, asynq.TaskStateRetry); len(info.Result) != 0 || info.Retried != 0 {
					t.Errorf("the replayed task has the result %q and %d retries", info.Result, info.Retried)
				}
				if w, err := r.queue.Inspector().Find(t.Context(), task); err != nil || w.Conflicts != 1 || w.Key != "order:1" || w.Position != 1 {
					t.Errorf("the replayed task waits as %+v, %v; want its first conflict", w, err)
				}
				for range tt.again - 1 {
					r.refusedAgain(task, "order:1", middleware.Park)
				}
				r.refusedAgain(task, "order:1", middleware.Archive) // and reaches its bound as late
				if again := r.reason(task); again.Limit != bound || again.Conflicts != tt.conflicts {
					t.Errorf("the second time the reason is %+v", again)
				}
			}
			if tt.waits > 0 {
				r.giveBack(lease)
			} else if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range tt.waits {
				receive(t, ran)
			}
			if n := r.replayAll(middleware.ReplayOptions{Key: "order:1", Limit: bound}); n != 1 {
				t.Errorf("replayed %d tasks", n)
			}
			if retried := receive(t, ran); retried != 0 {
				t.Errorf("the replayed task ran with %d retries", retried)
			}
			r.gone(task)
		})
	}
}

func TestTheLeaseOfAHolderThatIsUnknownHasNoAge(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	r.client.Set(t.Context(), "railtoken:lock:{order:1}", "foreign", time.Minute)
	r.serve(r.options(middleware.FailFast{}), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
	if got := r.reason(r.enqueue(payload{Key: "order:1"})); got.Held != 0 || !got.Holder.Since.IsZero() || got.Holder.Label != "" {
		t.Errorf("the reason is %+v", got)
	}
}

// archive is a callback that has a task archived with its reason.
func archive(_ context.Context, _ *asynq.Task, c *middleware.ConflictError) error { return c }

// full returns a server whose strategy lets one task wait for a key, with that one for each of the keys, and a lease on
// each key.
func (r *rig) full(handler asynq.HandlerFunc, keys ...string) []*locking.Lease {
	r.Helper()
	var leases []*locking.Lease
	strategy := middleware.Requeue{Delay: time.Hour, Limits: delayqueue.Limits{Waiters: 1}, OnLimit: archive}
	r.serve(r.options(strategy), asynq.Config{Concurrency: 2, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }}, handler)
	for _, key := range keys {
		leases = append(leases, r.hold(key))
		r.settled(r.enqueue(payload{Key: key}), asynq.TaskStateRetry)
	}
	return leases
}

func TestReplayConflictsLeavesWhatIsArchivedForOtherReasons(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	r.full(func(_ context.Context, task *asynq.Task) error {
		_, err := task.ResultWriter().Write([]byte(`{"key":"order:1","outcome":"failed","limit":"waiters"}`))
		return errors.Join(err, asynq.SkipRetry)
	}, "order:1", "order:2")
	atLimit, other := r.enqueue(payload{Key: "order:1"}), r.enqueue(payload{Key: "order:2"})
	failed, poison := r.enqueue(payload{Key: "free"}), r.enqueue(payload{})
	byHand := r.enqueue(payload{Key: "order:1"}, asynq.ProcessIn(time.Hour))
	if err := r.inspect.ArchiveTask(byHand.Queue, byHand.ID); err != nil {
		t.Fatal(err)
	}
	for _, task := range []delayqueue.Task{atLimit, other, failed, poison} {
		r.settled(task, asynq.TaskStateArchived)
	}
	for _, opts := range []middleware.ReplayOptions{{Key: "order:3"}, {Key: "order"}, {Limit: delayqueue.AgeLimit}, {Key: "order:1", Limit: delayqueue.ConflictsLimit}} {
		if n := r.replayAll(opts); n != 0 {
			t.Errorf("%+v: replayed %d", opts, n)
		}
	}
	seen := len(r.events.await(t, 2, ended(middleware.Archive)))
	if n := r.replayAll(middleware.ReplayOptions{Key: "order:1"}); n != 1 {
		t.Errorf("for one key replayed %d", n)
	}
	// Its line is still full, so that it is archived once more.
	if e := r.events.await(t, seen+1, ended(middleware.Archive))[seen]; e.Task != atLimit {
		t.Errorf("%s was replayed, want %s", e.Task, atLimit)
	}
	r.settled(atLimit, asynq.TaskStateArchived)
	if n := r.replayAll(middleware.ReplayOptions{}); n != 2 {
		t.Errorf("replayed %d, want those of both keys", n)
	}
	for _, task := range []delayqueue.Task{failed, poison, byHand} {
		if info := r.info(task); info.State != asynq.TaskStateArchived {
			t.Errorf("%s is %v", task, info.State)
		}
	}
}

func TestReplayConflictsLeavesATaskThatCameToAnotherEndSince(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	leases := r.full(func(_ context.Context, task *asynq.Task) error {
		if string(task.Payload()) == `{"key":"order:1","n":7}` {
			return fmt.Errorf("no such order: %w", asynq.SkipRetry)
		}
		return nil
	}, "order:1")
	task := r.enqueue(payload{Key: "order:1", N: 7})
	r.settled(task, asynq.TaskStateArchived)
	r.giveBack(leases[0])
	r.events.await(t, 1, func(e middleware.Event) bool { return e.Kind == middleware.Released })
	if err := r.inspect.RunTask(task.Queue, task.ID); err != nil { // by hand, in a tool that knows nothing of results
		t.Fatal(err)
	}
	r.events.await(t, 2, func(e middleware.Event) bool { return e.Kind == middleware.Released })
	info := r.settled(task, asynq.TaskStateArchived)
	if _, err := middleware.ParseConflict(info.Result); err != nil {
		t.Fatalf("the test shows nothing: %v", err)
	}
	if n := r.replayAll(middleware.ReplayOptions{}); n != 0 {
		t.Errorf("replayed %d, though its last error is %q", n, info.LastErr)
	}
}

func TestReplayConflictsLeavesThoseOfFailFast(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	r.hold("order:1")
	r.serve(r.options(middleware.FailFast{}), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
	if reason := r.reason(r.enqueue(payload{Key: "order:1"})); reason.Limit != delayqueue.NoLimit {
		t.Errorf("the reason is %+v", reason)
	}
	if n := r.replayAll(middleware.ReplayOptions{}); n != 0 {
		t.Errorf("replayed %d", n)
	}
}

func TestReplayConflictsIsLimitedAndBeginsWithTheOldest(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	r.full(func(context.Context, *asynq.Task) error { return nil }, "order:1")
	var tasks []string
	for i := range 3 {
		task := r.enqueue(payload{Key: "order:1"}, asynq.TaskID(fmt.Sprint(i)))
		r.settled(task, asynq.TaskStateArchived)
		tasks = append(tasks, task.ID)
	}
	seen := len(r.events.await(t, 3, ended(middleware.Archive)))
	if n := r.replayAll(middleware.ReplayOptions{Most: 2}); n != 2 {
		t.Errorf("replayed %d, want 2", n)
	}
	var again []string
	for _, e := range r.events.await(t, seen+2, ended(middleware.Archive))[seen:] {
		again = append(again, e.Task.ID)
	}
	slices.Sort(again)
	if !slices.Equal(again, tasks[:2]) {
		t.Errorf("replayed were %v, want the first two of %v", again, tasks)
	}
}

func TestReplayOptionsReportEveryFault(t *testing.T) {
	t.Parallel()
	_, err := middleware.ReplayConflicts(t.Context(), nil, middleware.ReplayOptions{Queue: " ", Most: -1})
	if joined, ok := err.(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 2 {
		t.Errorf("%v, want two faults", err)
	}
	r := newRig(t, redistest.Start(t).Client(t))
	if _, err := middleware.ReplayConflicts(t.Context(), r.queue, middleware.ReplayOptions{Queue: "no such"}); !errors.Is(err, asynq.ErrQueueNotFound) {
		t.Errorf("%v, want ErrQueueNotFound", err)
	}
}
