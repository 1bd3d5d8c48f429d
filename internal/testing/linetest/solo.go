// Package linetest provides a Redis with an engine and asynq's tools on it, for the tests of packages parking and
// delayqueue.
package linetest

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// Limit bounds every wait for an event.
const Limit = 30 * time.Second

// Solo is a Redis of its own with an engine and asynq's own tools on it.
type Solo struct {
	*testing.T

	Client  *redis.Client
	Engine  *line.Engine
	Tasks   *asynq.Client
	Inspect *asynq.Inspector
}

// NewSolo starts a Redis.
func NewSolo(t *testing.T) *Solo {
	t.Helper()
	return SoloOn(t, redistest.Start(t).Client(t))
}

// SoloOn uses a client's Redis.
func SoloOn(t *testing.T, client *redis.Client) *Solo {
	t.Helper()
	engine, err := line.New(client, line.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	return &Solo{
		T: t, Client: client, Engine: engine,
		Tasks: asynq.NewClientFromRedisClient(client), Inspect: asynq.NewInspectorFromRedisClient(client),
	}
}

// OK ends the test on an error.
func (r *Solo) OK(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// Delayed adds a task that is not due for an hour.
func (r *Solo) Delayed(id string, opts ...asynq.Option) line.Task {
	r.Helper()
	opts = append([]asynq.Option{asynq.TaskID(id), asynq.ProcessIn(time.Hour)}, opts...)
	info, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), opts...)
	r.OK(err)
	return line.Task{Queue: info.Queue, ID: info.ID}
}

// Begin makes a task active, wherever it is.
func (r *Solo) Begin(t line.Task) line.Task {
	r.Helper()
	r.OK(Fetch(r.Context(), r.Client, t))
	return t
}

// Park makes a task active, if it is not, and parks it on a key. Its timer ends in an hour.
func (r *Solo) Park(t line.Task, key string) line.Parked {
	r.Helper()
	parked, err := r.Engine.Park(r.Context(), r.Begin(t), key, line.ParkOptions{RetryAfter: time.Hour})
	r.OK(err)
	return parked
}

// Wake wakes the next waiter.
func (r *Solo) Wake(key string) line.Woken {
	r.Helper()
	woken, err := r.Engine.Wake(r.Context(), key, line.WakeOptions{})
	r.OK(err)
	return woken
}

// State returns asynq's state of a task.
func (r *Solo) State(t line.Task) asynq.TaskState {
	r.Helper()
	info, err := r.Inspect.GetTaskInfo(t.Queue, t.ID)
	r.OK(err)
	return info.State
}

// Become awaits a state of a task.
func (r *Solo) Become(t line.Task, want asynq.TaskState) {
	r.Helper()
	Until(r.T, t.String()+" is "+want.String(), func() bool {
		info, err := r.Inspect.GetTaskInfo(t.Queue, t.ID)
		return err == nil && info.State == want
	})
}

// Until awaits a condition.
func (r *Solo) Until(what string, so func() bool) {
	r.Helper()
	Until(r.T, what, so)
}

// Waiting returns the IDs of a key's waiters.
func (r *Solo) Waiting(key string) []string {
	r.Helper()
	return Waiting(r.T, r.Client, key)
}

// Serve runs an asynq server until the end of the test. What its handlers refuse is tried again in an hour.
func (r *Solo) Serve(concurrency int, handler func(ctx context.Context, id string) error) {
	r.Helper()
	Serve(r.T, r.Engine, asynq.Config{Concurrency: concurrency}, handler)
}

// Remove deletes a task, as when it is done.
func (r *Solo) Remove(t line.Task) {
	r.Helper()
	r.OK(r.Inspect.DeleteTask(t.Queue, t.ID))
}

// Until awaits a condition.
func Until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for began := time.Now(); time.Since(began) < Limit; <-time.After(time.Millisecond) {
		if so() {
			return
		}
	}
	t.Fatalf("waited %v in vain until %s", Limit, what)
}

// Waiting returns the IDs of a key's waiters.
func Waiting(t *testing.T, client redis.UniversalClient, key string) []string {
	t.Helper()
	entries, err := client.ZRange(t.Context(), line.Names{}.Waiters(key), 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, entry := range entries {
		if task, err := line.ParseEntry(entry); err == nil {
			ids = append(ids, task.ID)
		}
	}
	return ids
}

// Serve runs an asynq server that speaks through an engine until the end of the test.
func Serve(
	t *testing.T, engine *line.Engine, cfg asynq.Config, handler func(ctx context.Context, id string) error,
) *asynq.Server {
	t.Helper()
	interval := cmp.Or(cfg.TaskCheckInterval, 5*time.Millisecond)
	cfg.TaskCheckInterval, cfg.ShutdownTimeout, cfg.LogLevel = broker.CheckInterval, time.Millisecond, asynq.FatalLevel
	if cfg.IsFailure == nil {
		cfg.IsFailure = func(error) bool { return false }
	}
	if cfg.RetryDelayFunc == nil {
		cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
	}
	conn := engine.Conn(broker.Options{Queues: cfg.Queues, Slots: cfg.Concurrency, Strict: cfg.StrictPriority, Interval: interval})
	server := asynq.NewServerFromRedisClient(conn, cfg)
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		return handler(ctx, id)
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	return server
}

// fetchScript does what asynq's own script does when a server fetches a task, but for a task wherever it is. It does
// nothing when the task is in no list.
var fetchScript = redis.NewScript(`
local task, pending, scheduled, retry, active, lease = unpack(KEYS)
local id = ARGV[1]
if redis.call('LREM', pending, 1, id) + redis.call('ZREM', scheduled, id) + redis.call('ZREM', retry, id) == 0 then
  return 0
end
redis.call('LPUSH', active, id)
redis.call('ZADD', lease, ARGV[2], id)
redis.call('HSET', task, 'state', 'active')
redis.call('HDEL', task, 'pending_since')
return 1`)

// Fetch makes a task active, with a lease of 30 s.
func Fetch(ctx context.Context, client redis.UniversalClient, t line.Task) error {
	keys := []string{t.Hash()}
	for _, name := range []string{"pending", "scheduled", "retry", "active", "lease"} {
		keys = append(keys, t.Prefix()+name)
	}
	return fetchScript.Run(ctx, client, keys, t.ID, time.Now().Add(30*time.Second).Unix()).Err()
}
