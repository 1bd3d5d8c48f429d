package attach_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(endsOn); addr != "" {
		hearNothing(addr)
		return
	}
	if addr := os.Getenv(doomedTasks); addr != "" {
		if err := doomed(addr); err != nil {
			fmt.Println("failed", err)
		}
		return
	}
	redistest.SideBySide(8) // most of these tests wait
	leaktest.Verify(m)
}

// limit bounds every wait for an event.
const limit = 30 * time.Second

// byPayload takes the payload for the key.
func byPayload(_ context.Context, task *asynq.Task) ([]string, error) {
	return []string{string(task.Payload())}, nil
}

// rig is a Redis with asynq's own tools on it.
type rig struct {
	*testing.T
	client  *redis.Client
	tasks   *asynq.Client
	inspect *asynq.Inspector
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return rigOn(t, redistest.Start(t))
}

func rigOn(t *testing.T, server *redistest.Server) *rig {
	t.Helper()
	client := server.Client(t)
	return &rig{t, client, asynq.NewClientFromRedisClient(client), asynq.NewInspectorFromRedisClient(client)}
}

// attach attaches locks, until the end of the test.
func (r *rig) attach(cfg asynq.Config, opts attach.Options) *attach.Attached {
	r.Helper()
	cfg.LogLevel = cmp.Or(cfg.LogLevel, asynq.FatalLevel)
	a, err := attach.New(r.client, cfg, opts)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := a.Close(); err != nil {
			r.Error(err)
		}
	})
	return a
}

// serve runs a server until the end of the test.
func (r *rig) serve(client redis.UniversalClient, cfg asynq.Config, h asynq.Handler) *asynq.Server {
	r.Helper()
	s := asynq.NewServerFromRedisClient(client, cfg)
	if err := s.Start(h); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(s.Shutdown)
	return s
}

// enqueue adds a task that wants a key.
func (r *rig) enqueue(key string, opts ...asynq.Option) *asynq.TaskInfo {
	r.Helper()
	info, err := r.tasks.Enqueue(asynq.NewTask("test", []byte(key)), opts...)
	if err != nil {
		r.Fatal(err)
	}
	return info
}

// settled waits until a task is in a state.
func (r *rig) settled(task *asynq.TaskInfo, state asynq.TaskState) *asynq.TaskInfo {
	r.Helper()
	for began := time.Now(); time.Since(began) < limit; <-time.After(2 * time.Millisecond) {
		if info, err := r.inspect.GetTaskInfo(task.Queue, task.ID); err == nil && info.State == state {
			return info
		}
	}
	info, err := r.inspect.GetTaskInfo(task.Queue, task.ID)
	r.Fatalf("the task is not %v: %+v, %v", state, info, err)
	return nil
}

func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	return redistest.Receive(t, c, limit)
}

func TestATaskOnItsLastAttemptWaitsForItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 4}, attach.Options{})
	ran := make(chan string, 1)
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		ran <- string(task.Payload())
		return nil
	})))
	held, err := a.Locker().Acquire(t.Context(), []string{"order:1"}, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	task := r.enqueue("order:1", asynq.MaxRetry(0))
	if info := r.settled(task, asynq.TaskStateRetry); info.Retried != 0 {
		t.Errorf("%+v", info)
	}
	if waiters, err := a.Queue().Inspector().Waiters(t.Context(), "order:1", 10); err != nil || len(waiters) != 1 || waiters[0].Task.ID != task.ID {
		t.Errorf("waiters %+v, %v", waiters, err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if key := receive(t, ran); key != "order:1" {
		t.Errorf("the task of %s ran", key)
	}
}

func TestWhatIsForgottenIsAnErrorOfTheFirstTask(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		start  func(r *rig, a *attach.Attached, h asynq.Handler)
		remedy string
	}{
		"the config": {func(r *rig, a *attach.Attached, h asynq.Handler) {
			r.serve(a.Client(), asynq.Config{LogLevel: asynq.FatalLevel}, h)
		}, "asynq.NewServerFromRedisClient(attached.Client(), attached.Config())"},
		"the client": {func(r *rig, a *attach.Attached, h asynq.Handler) { r.serve(r.client, a.Config(), h) }, "asynq.NewServerFromRedisClient(attached.Client(), attached.Config())"},
		"both": {func(r *rig, a *attach.Attached, h asynq.Handler) {
			r.serve(r.client, asynq.Config{LogLevel: asynq.FatalLevel}, h)
		}, "asynq.NewServerFromRedisClient(attached.Client(), attached.Config())"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var log strings.Builder // written before the task's error is there
			a := r.attach(asynq.Config{}, attach.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			tt.start(r, a, a.Lock(byPayload)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				t.Error("the handler ran")
				return nil
			})))
			info := r.settled(r.enqueue("order:1"), asynq.TaskStateRetry)
			if !strings.Contains(info.LastErr, tt.remedy) {
				t.Errorf("the task's error is %q, want one with %q", info.LastErr, tt.remedy)
			}
			if n := strings.Count(log.String(), tt.remedy); n != 1 {
				t.Errorf("the log tells it %d times: %s", n, log.String())
			}
		})
	}
}

func TestFaultsAreFoundAtNew(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	node := redis.NewClient(&redis.Options{})
	defer node.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for name, tt := range map[string]struct {
		client redis.UniversalClient
		opts   attach.Options
		want   string
	}{
		"no client":            {nil, attach.Options{}, "give the go-redis client"},
		"a ring":               {ring, attach.Options{}, "ring"},
		"a TTL beyond asynq's": {client, attach.Options{TTL: time.Minute}, "below 55s"},
		"a wrong strategy":     {client, attach.Options{Strategy: middleware.Requeue{Delay: -1}}, "cannot be negative"},
		"a queue on a cluster": {cluster, attach.Options{Strategy: middleware.Requeue{Queue: "slow"}}, "on a Redis Cluster"},
		"a queue through a wrapped client": {
			struct{ *redis.Client }{node}, attach.Options{Strategy: middleware.Requeue{Queue: "slow"}}, "not a *redis.Client",
		},
	} {
		if a, err := attach.New(tt.client, asynq.Config{}, tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, tt.want)
			_ = a.Close()
		}
	}
}

// The locks would refuse each task of the handler.
func TestALeaseMustEndBeforeItsFenceIsForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	long := attach.LockOptions{Key: byPayload, MaxHold: locking.DefaultFenceTTL}
	if _, err := r.attach(asynq.Config{}, attach.Options{}).LockWith(long); err == nil || !strings.Contains(err.Error(), "raise MaxHold") {
		t.Errorf("%v, want an error that says what to raise", err)
	}
	if _, err := r.attach(asynq.Config{}, attach.Options{MaxHold: long.MaxHold}).LockWith(long); err != nil {
		t.Error(err)
	}
}

func TestAHandlerIsAddedWhileAServerStarts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{}, attach.Options{})
	done := make(chan error)
	go func() {
		_, err := a.LockWith(attach.LockOptions{Key: byPayload, Strategy: middleware.Requeue{Queue: "slow"}})
		done <- err
	}()
	_, served := a.Config().Queues["slow"]
	if err := receive(t, done); (err == nil) != served {
		t.Errorf("%v, and the server works on the queue: %v", err, served)
	}
}

func TestAQueueThatNoServerWorksOnIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	slow := attach.LockOptions{Key: byPayload, Strategy: middleware.Requeue{Queue: "slow"}}
	early := r.attach(asynq.Config{}, attach.Options{})
	if _, err := early.LockWith(slow); err != nil || early.Config().Queues["slow"] == 0 || early.Config().Queues["default"] == 0 {
		t.Errorf("before a server has them: %v, queues %v", err, early.Config().Queues)
	}
	late := r.attach(asynq.Config{}, attach.Options{})
	late.Config()
	if _, err := late.LockWith(slow); err == nil || !strings.Contains(err.Error(), "asynq.Config.Queues") {
		t.Errorf("after a server has them: %v", err)
	}
}

// userKey is the context key of a user's value.
type userKey struct{}

func TestTheFunctionsOfAConfigAreAskedAboutFailuresAlone(t *testing.T) {
	t.Parallel()
	failure := errors.New("the handler's")
	var mu sync.Mutex
	var asked []error
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, err)
	}
	r := newRig(t)
	a := r.attach(asynq.Config{
		Concurrency:    4,
		IsFailure:      func(err error) bool { note(err); return true },
		RetryDelayFunc: func(_ int, err error, _ *asynq.Task) time.Duration { note(err); return time.Hour },
		ErrorHandler:   asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { note(err) }),
		BaseContext:    func() context.Context { return context.WithValue(context.Background(), userKey{}, "the user's") },
	}, attach.Options{})
	lock := a.Lock(byPayload)
	r.serve(a.Client(), a.Config(), lock(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		if ctx.Value(userKey{}) != "the user's" {
			t.Error("the context is not made from the user's")
		}
		return failure
	})))
	held, err := a.Locker().Acquire(t.Context(), []string{"held"}, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Release(context.Background()) }()
	r.settled(r.enqueue("held"), asynq.TaskStateRetry)
	r.settled(r.enqueue("free"), asynq.TaskStateRetry)
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 3 {
		t.Errorf("asked about %v, want the failure three times", asked)
	}
	for _, err := range asked {
		if !errors.Is(err, failure) || attach.Waits(err) {
			t.Errorf("asked about %v", err)
		}
	}
}

func TestOtherMiddlewaresCanTellATaskThatWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 4}, attach.Options{})
	seen := make(chan error, 1)
	locked := a.Lock(byPayload)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }))
	r.serve(a.Client(), a.Config(), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := locked.ProcessTask(ctx, task)
		seen <- err
		return nil // swallowed
	}))
	held, err := a.Locker().Acquire(t.Context(), []string{"held"}, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Release(context.Background()) }()
	task := r.enqueue("held")
	if err := receive(t, seen); !attach.Waits(err) || attach.Waits(nil) {
		t.Errorf("%v is not that of a task that waits", err)
	}
	r.settled(task, asynq.TaskStateRetry)
}

func TestClosingBeforeTheClientLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{}, attach.Options{})
	s := r.serve(a.Client(), a.Config(), a.Unlocked(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })))
	r.enqueue("any")
	a.Stop()
	s.Shutdown()
}

// asynq leaves a queue alone whose priority is zero. A strategy can still let tasks wait in it, and then it is worked on.
func TestAQueueWithoutPriorityIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 4, Queues: map[string]int{"on": 2, "also": 1, "off": 0}}, attach.Options{})
	ran := make(chan string, 4)
	off := r.enqueue("order:0", asynq.Queue("off"))
	r.enqueue("order:1", asynq.Queue("on"))
	r.enqueue("order:2", asynq.Queue("also"))
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		ran <- string(task.Payload())
		return nil
	})))
	for range 2 {
		if key := receive(t, ran); key == "order:0" {
			t.Error("its task ran")
		}
	}
	if info, err := r.inspect.GetTaskInfo("off", off.ID); err != nil || info.State != asynq.TaskStatePending {
		t.Errorf("%+v, %v", info, err)
	}
}
