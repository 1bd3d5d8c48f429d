package attach_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/internal/testing/testserver"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// end is a call of OnArchived or OnCompleted.
type end struct {
	info   *asynq.TaskInfo
	reason attach.EndReason
}

func (e end) String() string {
	return fmt.Sprintf("%s %s %s", e.info.ID, e.info.State, e.reason.Cause)
}

// hears are callbacks that pass on what they hear.
type hears chan end

func (h hears) options(opts attach.Options) attach.Options {
	opts.OnArchived = func(_ context.Context, info *asynq.TaskInfo, reason attach.EndReason) error {
		h <- end{info, reason}
		return nil
	}
	opts.OnCompleted = func(_ context.Context, info *asynq.TaskInfo) error {
		h <- end{info: info}
		return nil
	}
	return opts
}

// hears waits for an end.
func (r *rig) hears(h hears, want string) end {
	r.Helper()
	got := redistest.Receive(r.T, h, limit)
	if got.String() != want {
		r.Errorf("heard of %s (%s), want %s", got, got.info.LastErr, want)
	}
	return got
}

// told waits until no mark is left, and fails if another end is told.
func (r *rig) told(h hears) {
	r.Helper()
	r.until("no mark is left", func() bool {
		left, err := r.client.Keys(r.Context(), "railtoken:ends:*:[ac]*").Result()
		return err == nil && len(left) == 0
	})
	select {
	case more := <-h:
		r.Errorf("heard of %s once more", more)
	default:
	}
}

// fails returns the error that a task asks for.
func fails(_ context.Context, task *asynq.Task) error {
	switch task.Type() {
	case "skip":
		return fmt.Errorf("no such order: %w", asynq.SkipRetry)
	case "revoke":
		return fmt.Errorf("not wanted: %w", asynq.RevokeTask)
	case "fail":
		return errors.New("no paper")
	case "result":
		_, err := task.ResultWriter().Write([]byte("42"))
		return err
	}
	return nil
}

func TestEachEndIsToldWithItsReason(t *testing.T) {
	t.Parallel()
	past := asynq.Deadline(time.Now().Add(-time.Minute))
	for name, tt := range map[string]struct {
		kind string
		opts []asynq.Option
		want string
	}{
		"SkipRetry, with retries left":      {"skip", []asynq.Option{asynq.MaxRetry(5)}, "task archived skip_retry"},
		"SkipRetry, on the last attempt":    {"skip", []asynq.Option{asynq.MaxRetry(0)}, "task archived skip_retry"},
		"exhausted":                         {"fail", []asynq.Option{asynq.MaxRetry(0)}, "task archived exhausted"},
		"deadline before the run":           {"fail", []asynq.Option{asynq.MaxRetry(0), past}, "task archived deadline"},
		"revoked":                           {"revoke", nil, "task active revoked"},
		"revoked, with retention":           {"revoke", []asynq.Option{asynq.Retention(time.Hour)}, "task active revoked"},
		"revoked, unique":                   {"revoke", []asynq.Option{asynq.Unique(time.Hour)}, "task active revoked"},
		"completed":                         {"ok", nil, "task completed "},
		"completed, with retention":         {"ok", []asynq.Option{asynq.Retention(time.Hour)}, "task completed "},
		"completed, unique":                 {"ok", []asynq.Option{asynq.Unique(time.Hour)}, "task completed "},
		"completed, unique, with retention": {"result", []asynq.Option{asynq.Unique(time.Hour), asynq.Retention(time.Hour)}, "task completed "},
	} {
		for _, locked := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, locked %v", name, locked), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				h := make(hears, 10)
				a := r.attach(asynq.Config{Concurrency: 2}, h.options(attach.Options{}))
				var handler asynq.Handler = asynq.HandlerFunc(fails)
				if locked {
					handler = a.Lock(byPayload)(handler)
				}
				r.serve(a.Client(), a.Config(), handler)
				_, err := r.tasks.Enqueue(asynq.NewTaskWithHeaders(tt.kind, []byte("k"), map[string]string{"a": "b"}),
					append(tt.opts, asynq.TaskID("task"))...)
				ok(t, err)
				got := r.hears(h, tt.want)
				if got.info.Type != tt.kind || string(got.info.Payload) != "k" || got.info.Queue != "default" || got.info.Headers["a"] != "b" {
					t.Errorf("heard of %+v", got.info)
				}
				if tt.kind == "result" && string(got.info.Result) != "42" {
					t.Errorf("the result is %q", got.info.Result)
				}
				if got.reason.Conflict != nil {
					t.Errorf("a conflict: %v", got.reason.Conflict)
				}
				r.told(h)
			})
		}
	}
}

// held runs a task that has the key "k" until release is called.
func (r *rig) held(a *attach.Attached) (release func()) {
	r.Helper()
	lease, err := a.Locker().Acquire(r.Context(), []string{"k"}, locking.Options{})
	ok(r.T, err)
	return func() { ok(r.T, lease.Release(context.Background())) }
}

func TestAnEndInConflictIsToldWithTheConflict(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		strategy middleware.Strategy
		opts     []asynq.Option
		want     string
		outcome  middleware.Outcome
		limit    delayqueue.Limit
	}{
		"FailFast":            {middleware.FailFast{}, nil, "task archived fail_fast", middleware.Archive, ""},
		"FailFast, last":      {middleware.FailFast{}, []asynq.Option{asynq.MaxRetry(0)}, "task archived fail_fast", middleware.Archive, ""},
		"FailFast, discarded": {middleware.FailFast{Outcome: middleware.Discard}, nil, "task active fail_fast", middleware.Discard, ""},
		"FailFast, failed": {
			middleware.FailFast{Outcome: middleware.Retry},
			[]asynq.Option{asynq.MaxRetry(0)},
			"task archived exhausted",
			middleware.Retry, "",
		},
		"limit": {
			middleware.Requeue{Limits: delayqueue.Limits{Conflicts: 1}},
			nil, "task archived limit", middleware.Archive,
			delayqueue.ConflictsLimit,
		},
		"limit, last": {
			middleware.Requeue{Limits: delayqueue.Limits{Conflicts: 1}},
			[]asynq.Option{asynq.MaxRetry(0)},
			"task archived limit",
			middleware.Archive, delayqueue.ConflictsLimit,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			h := make(hears, 10)
			a := r.attach(asynq.Config{Concurrency: 2}, h.options(attach.Options{Strategy: tt.strategy}))
			release := r.held(a)
			defer release()
			r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(fails)))
			r.enqueue("k", append(tt.opts, asynq.TaskID("task"))...)
			if tt.limit != delayqueue.NoLimit {
				r.until("it waits", func() bool { return r.inspect.RunTask("default", "task") == nil })
			}
			got := r.hears(h, tt.want)
			if c := got.reason.Conflict; c == nil || c.Key != "k" || c.Outcome != tt.outcome || c.Limit != tt.limit || c.Holder.Label == "" {
				t.Errorf("the conflict is %+v", c)
			}
			r.told(h)
		})
	}
}

func TestAnEndByAnotherProgramIsTold(t *testing.T) {
	t.Parallel()
	testserver.LeaveToLong(t)
	r := newRig(t)
	r.enqueue("k", asynq.TaskID("before"), asynq.ProcessIn(time.Hour))
	ok(t, r.inspect.ArchiveTask("default", "before")) // nobody hears yet
	<-time.After(time.Second)                         // asynq's times are whole seconds
	// The worker of this one has died.
	r.enqueue("k", asynq.TaskID("dead"), asynq.MaxRetry(0))
	ok(t, r.client.LMove(t.Context(), "asynq:{default}:pending", "asynq:{default}:active", "RIGHT", "LEFT").Err())
	ok(t, r.client.ZAdd(t.Context(), "asynq:{default}:lease",
		redis.Z{Score: float64(time.Now().Add(-time.Minute).Unix()), Member: "dead"}).Err())
	ok(t, r.client.HSet(t.Context(), "asynq:{default}:t:dead", "state", "active").Err())
	h := make(hears, 10)
	a := r.attach(asynq.Config{Concurrency: 2}, h.options(attach.Options{}))
	server := r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(fails)))
	r.hears(h, "dead archived lease_expired")
	for _, id := range []string{"hand", "again"} {
		r.enqueue("k", asynq.TaskID(id), asynq.ProcessIn(time.Hour))
		ok(t, r.inspect.ArchiveTask("default", id))
		r.hears(h, id+" archived by_hand")
	}
	ok(t, r.inspect.RunTask("default", "dead")) // it completes
	r.hears(h, "dead completed ")
	server.Shutdown()
	// A server that is not attached archives these.
	r.serve(r.client, asynq.Config{LogLevel: asynq.FatalLevel, TaskCheckInterval: 50 * time.Millisecond}, asynq.HandlerFunc(fails))
	for id, want := range map[string]string{"skip": "skip_retry", "fail": "exhausted"} {
		_, err := r.tasks.Enqueue(asynq.NewTask(id, nil), asynq.TaskID(id), asynq.MaxRetry(map[string]int{"skip": 3}[id]))
		ok(t, err)
		r.hears(h, id+" archived "+want)
	}
	<-time.After(6 * time.Second) // another look at the archive
	r.told(h)
}

func TestACallbackThatFailsIsCalledAgain(t *testing.T) {
	t.Parallel()
	testserver.LeaveToLong(t)
	r := newRig(t)
	var calls atomic.Int64
	h := make(hears, 10)
	opts := h.options(attach.Options{})
	pass := opts.OnArchived
	opts.OnArchived = func(ctx context.Context, info *asynq.TaskInfo, reason attach.EndReason) error {
		switch {
		case info.ID != "task":
		case calls.Add(1) == 1:
			panic("not now")
		case calls.Load() == 2:
			return errors.New("no network")
		case calls.Load() == 3:
			runtime.Goexit()
		}
		return pass(ctx, info, reason)
	}
	a := r.attach(asynq.Config{Concurrency: 2}, opts)
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(fails)))
	for _, id := range []string{"task", "other"} {
		_, err := r.tasks.Enqueue(asynq.NewTask("skip", []byte(id)), asynq.TaskID(id))
		ok(t, err)
	}
	r.hears(h, "other archived skip_retry")
	r.hears(h, "task archived skip_retry")
	if calls.Load() != 4 {
		t.Errorf("%d calls", calls.Load())
	}
	r.told(h)
}

func TestEndsOutliveLostReplies(t *testing.T) {
	t.Parallel()
	testserver.LeaveToLong(t)
	r := newRig(t)
	proxy := redistest.NewProxy(t, r.client.Options().Addr)
	var replies atomic.Int64
	proxy.Cut(func(request, _ []byte) bool { return redistest.IsScript(request) && replies.Add(1)%20 == 0 })
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 32})
	t.Cleanup(func() { _ = client.Close() })
	const tasks = 300
	told := make(chan string, 4*tasks)
	a, err := attach.New(client, asynq.Config{Concurrency: 8, LogLevel: asynq.FatalLevel}, attach.Options{
		OnArchived:  func(_ context.Context, info *asynq.TaskInfo, _ attach.EndReason) error { told <- info.ID; return nil },
		OnCompleted: func(_ context.Context, info *asynq.TaskInfo) error { told <- info.ID; return nil },
		Logger:      slog.New(slog.DiscardHandler),
	})
	ok(t, err)
	t.Cleanup(func() { _ = a.Close() })
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(fails)))
	for i := range tasks {
		_, err := r.tasks.Enqueue(asynq.NewTask([]string{"skip", "ok"}[i%2], fmt.Append(nil, i%20)), asynq.TaskID(fmt.Sprint(i)))
		ok(t, err)
	}
	seen := map[string]bool{}
	for len(seen) < tasks {
		seen[redistest.Receive(t, told, limit)] = true
	}
}

func TestEndsAreToldOnEveryTopology(t *testing.T) {
	t.Parallel()
	elsewhere := func(t *testing.T) locking.Locker {
		locker, err := locking.NewSingle(redistest.Start(t).Client(t), locking.SingleOptions{})
		ok(t, err)
		t.Cleanup(func() { _ = locker.Close() })
		return locker
	}
	for _, order := range []middleware.Order{middleware.BestEffort, middleware.FIFO, middleware.StrictFIFO} {
		for name, place := range map[string]struct {
			cluster   bool
			locker    func(*testing.T) locking.Locker
			namespace string
		}{
			"one Redis": {}, "locks elsewhere": {locker: elsewhere}, "a Cluster": {cluster: true},
			"a namespace": {namespace: "shop-a"}, "a namespace on a Cluster": {cluster: true, namespace: "shop-a"},
		} {
			t.Run(fmt.Sprint(order, ", ", name), func(t *testing.T) {
				t.Parallel()
				var client redis.UniversalClient
				if place.cluster {
					client = redistest.StartCluster(t, 3).Client(t)
				} else {
					client = redistest.Start(t).Client(t)
				}
				h := make(hears, 10)
				opts := h.options(attach.Options{
					Strategy: middleware.Requeue{Order: order}, Namespace: place.namespace, NamespaceTasks: place.namespace != "",
				})
				if place.locker != nil {
					opts.Locker = place.locker(t)
				}
				a, err := attach.New(client, asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel}, opts)
				ok(t, err)
				t.Cleanup(func() { _ = a.Close() })
				s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
				ok(t, s.Start(a.Lock(byPayload)(asynq.HandlerFunc(fails))))
				t.Cleanup(s.Shutdown)
				p := a.Producer(nil)
				r := &rig{T: t}
				for i, tt := range []struct {
					kind, want string
					opts       []asynq.Option
				}{
					{"ok", "completed ", nil},
					{"result", "completed ", []asynq.Option{asynq.Retention(time.Hour)}},
					{"skip", "archived skip_retry", nil},
					{"fail", "archived exhausted", []asynq.Option{asynq.MaxRetry(0)}},
					{"revoke", "active revoked", nil},
					{"ok", "completed ", []asynq.Option{asynq.Unique(time.Hour)}},
				} {
					id := fmt.Sprint("task", i)
					info, err := p.EnqueueContext(t.Context(), asynq.NewTask(tt.kind, []byte("k")), append(tt.opts, asynq.TaskID(id))...)
					ok(t, err)
					if tt.kind == "result" {
						if result, err := p.Wait(t.Context(), info); err != nil || string(result) != "42" {
							t.Errorf("the result is %q, %v", result, err)
						}
					}
					r.hears(h, id+" "+tt.want)
				}
				r.until("no mark is left", func() bool {
					in := (*line.Engine)(a.Queue()).Client()
					return in.ZCard(t.Context(), ends.ArchivedMarks("default")).Val()+
						in.ZCard(t.Context(), ends.CompletedMarks("default")).Val() == 0
				})
				if len(h) > 0 {
					t.Errorf("heard of %s once more", <-h)
				}
			})
		}
	}
}
