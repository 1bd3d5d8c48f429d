package middleware_test

import (
	"cmp"
	"context"
	"encoding/json"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// rig is a Redis with everything that a worker needs on it.
type rig struct {
	*testing.T
	client  redis.UniversalClient
	locker  *locking.Single
	queue   *delayqueue.Queue // of what was attached last
	tasks   *asynq.Client
	inspect *asynq.Inspector
	events  *events
	looks   time.Duration // the TaskCheckInterval, unless a test says otherwise

	attached *attach.Attached       // last
	budget   *middleware.SlotBudget // of that
}

func newRig(t *testing.T, client redis.UniversalClient) *rig {
	t.Helper()
	locker, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close() })
	queue, err := delayqueue.New(client, delayqueue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = queue.Close() })
	return &rig{
		T: t, client: client, locker: locker, queue: queue, events: &events{changed: make(chan struct{})},
		tasks: asynq.NewClientFromRedisClient(client), inspect: asynq.NewInspectorFromRedisClient(client),
		looks: 10 * time.Millisecond,
	}
}

// payload is the payload of all tasks in these tests.
type payload struct {
	Key string `json:"key"`
	N   int    `json:"n"`
}

// options is what a test attaches to a plain asynq server.
type options struct {
	attach.Options
	Key middleware.KeyFunc
}

// options returns the options of a test on the rig.
func (r *rig) options(s middleware.Strategy) options {
	return options{
		Options: attach.Options{Locker: r.locker, RedisKeys: r.locker.RedisKeys, Strategy: s, Observer: r.events.Observe},
		Key:     middleware.PayloadKey(func(p payload) string { return p.Key }),
	}
}

// attach attaches locks to the servers of a configuration until the end of the test.
func (r *rig) attach(opts options, cfg asynq.Config) *attach.Attached {
	r.Helper()
	cfg.TaskCheckInterval, cfg.LogLevel = cmp.Or(cfg.TaskCheckInterval, r.looks), asynq.FatalLevel
	a, err := attach.New(r.client, cfg, opts.Options)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = a.Close() })
	// A test looks at what the servers count for themselves.
	r.budget = (*middleware.SlotBudget)(reflect.ValueOf(a).Elem().FieldByName("server").Elem().FieldByName("Budget").Elem().UnsafePointer())
	r.attached, r.queue = a, a.Queue()
	return a
}

// serve runs a plain asynq server that has locks attached, for one handler, until the end of the test.
func (r *rig) serve(opts options, cfg asynq.Config, handler asynq.HandlerFunc) *asynq.Server {
	r.Helper()
	a := r.attach(opts, cfg)
	return r.serveOn(a.Client(), a.Lock(opts.Key)(handler))
}

// serveOn runs a server on what was attached last, with a client and a handler of its own.
func (r *rig) serveOn(client redis.UniversalClient, handler asynq.Handler) *asynq.Server {
	r.Helper()
	server := asynq.NewServerFromRedisClient(client, r.attached.Config())
	if err := server.Start(handler); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(server.Shutdown)
	return server
}

// lookSeldom is the TaskCheckInterval of tests in which minutes pass in virtual time, because the looks of an idle
// server are most of what they cost. It is far below the times that these tests measure.
const lookSeldom = 250 * time.Millisecond

// enqueue adds a task and returns its ID.
func (r *rig) enqueue(p payload, opts ...asynq.Option) delayqueue.Task {
	r.Helper()
	data, err := json.Marshal(p)
	if err != nil {
		r.Fatal(err)
	}
	info, err := r.tasks.Enqueue(asynq.NewTask("test", data), opts...)
	if err != nil {
		r.Fatal(err)
	}
	return delayqueue.Task{Queue: info.Queue, ID: info.ID}
}

// fetchScript does what asynq's own script does when a server fetches a task, but for a scheduled one.
var fetchScript = redis.NewScript(`
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('LPUSH', KEYS[3], ARGV[1])
redis.call('ZADD', KEYS[4], ARGV[2], ARGV[1])
return redis.call('HSET', KEYS[1], 'state', 'active')`)

// fetch has a scheduled task fetched by a worker that is none of this test's.
func (r *rig) fetch(t delayqueue.Task) {
	r.Helper()
	prefix := "asynq:{" + t.Queue + "}:"
	keys := []string{prefix + "t:" + t.ID, prefix + "scheduled", prefix + "active", prefix + "lease"}
	if err := fetchScript.Run(r.Context(), r.client, keys, t.ID, time.Now().Add(30*time.Second).Unix()).Err(); err != nil {
		r.Fatal(err)
	}
}

// hold takes a key as another program or worker would.
func (r *rig) hold(key string) *locking.Lease {
	r.Helper()
	lease, err := r.locker.Acquire(context.Background(), []string{key}, locking.Options{Label: "the-holder"})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

// giveBack releases a key as a middleware does, with the wake of the next task.
func (r *rig) giveBack(lease *locking.Lease) {
	r.Helper()
	if err := lease.Release(context.Background()); err != nil {
		r.Fatal(err)
	}
	if !lease.ShouldNotify() {
		r.Fatal("the releaser was not told that a task waits")
	}
	for _, key := range lease.Keys() {
		if _, err := r.queue.Wake(context.Background(), key, delayqueue.WakeOptions{}); err != nil {
			r.Fatal(err)
		}
	}
}

// info returns what asynq knows of a task.
func (r *rig) info(t delayqueue.Task) *asynq.TaskInfo {
	r.Helper()
	info, err := r.inspect.GetTaskInfo(t.Queue, t.ID)
	if err != nil {
		r.Fatalf("task %s: %v", t, err)
	}
	return info
}

// settled waits until asynq has a task in a state: it writes the state after the handler has returned.
func (r *rig) settled(t delayqueue.Task, state asynq.TaskState) *asynq.TaskInfo {
	r.Helper()
	for began := time.Now(); time.Since(began) < limit; <-pause(began) {
		// The inspector asks by scripts, which are most of what a wait costs.
		if now := r.client.HGet(context.Background(), "asynq:{"+t.Queue+"}:t:"+t.ID, "state").Val(); now != state.String() {
			continue
		}
		if info, err := r.inspect.GetTaskInfo(t.Queue, t.ID); err == nil && info.State == state {
			return info
		}
	}
	info, err := r.inspect.GetTaskInfo(t.Queue, t.ID)
	r.Fatalf("task %s is not %v: %+v, %v", t, state, info, err)
	return nil
}

// pause ends when what has been awaited since then is to be looked at again: after milliseconds at first, later after
// an eighth of the time that it has taken.
func pause(began time.Time) <-chan time.Time {
	return time.After(min(max(time.Since(began)/8, 2*time.Millisecond), 250*time.Millisecond))
}

// gone waits until asynq has deleted a task.
func (r *rig) gone(t delayqueue.Task) {
	r.Helper()
	for began := time.Now(); time.Since(began) < limit; <-pause(began) {
		if n := r.client.Exists(context.Background(), "asynq:{"+t.Queue+"}:t:"+t.ID).Val(); n == 0 {
			return
		}
	}
	r.Fatalf("task %s is still there: %+v", t, r.info(t))
}

// limit bounds every wait for an event, in real or virtual time.
const limit = time.Minute

// receive waits for a value.
func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	return redistest.Receive(t, c, limit)
}

// events collects what an observer is told.
type events struct {
	mu      sync.Mutex
	all     []middleware.Event
	changed chan struct{}
	during  func(ctx context.Context, ev middleware.Event) // not nil: called at each event
}

func (e *events) Observe(ctx context.Context, ev middleware.Event) {
	if ev.Reach != nil { // it is about a worker, not about a task
		return
	}
	e.mu.Lock()
	during := e.during
	e.mu.Unlock()
	if during != nil {
		during(ctx, ev)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
	close(e.changed)
	e.changed = make(chan struct{})
}

// await waits until n events fit and returns them.
func (e *events) await(t testing.TB, n int, fits func(middleware.Event) bool) []middleware.Event {
	t.Helper()
	deadline := time.After(limit)
	for {
		e.mu.Lock()
		var found []middleware.Event
		for _, ev := range e.all {
			if fits(ev) {
				found = append(found, ev)
			}
		}
		changed := e.changed
		e.mu.Unlock()
		if len(found) >= n {
			return found
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%d of %d events came within %v", len(found), n, limit)
		}
	}
}

// parked is a filter for tasks that have been parked: asynq has acknowledged their runs.
func parked(e middleware.Event) bool { return e.Kind == middleware.Parked }

func released(e middleware.Event) bool { return e.Kind == middleware.Released }

// ended returns a filter for runs that ended in conflict with an outcome. A task that ended as Parked is not parked
// yet: see parked.
func ended(o middleware.Outcome) func(middleware.Event) bool {
	return func(e middleware.Event) bool {
		conflict, ok := e.Err.(*middleware.ConflictError) //nolint:errorlint // an event carries the error itself
		return e.Kind == middleware.Ended && ok && conflict.Outcome == o
	}
}
