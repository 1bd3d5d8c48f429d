package line_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/linetest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// rig is a Redis with a Queue and asynq's own tools on it. The Redis is shared: keys and queues are the rig's own.
type rig struct {
	*testing.T
	name    string
	on      string // one of kinds
	Client  redis.UniversalClient
	Engine  *line.Engine
	Tasks   *asynq.Client
	Inspect *asynq.Inspector
}

// kinds are what a Queue works on.
var kinds = []string{"standalone", "cluster"}

// onEach runs a test on one node and on a Cluster.
func onEach(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, newRig(t, kind))
		})
	}
}

// onEachVirtual does so in virtual time, for tests that measure how long something takes.
func onEachVirtual(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, client := redistest.Virtual(t)
				if kind == "cluster" {
					test(t, newRigOn(t, kind, redistest.VirtualCluster(t, m)))
				} else {
					test(t, newRigOn(t, kind, client))
				}
			})
		})
	}
}

var rigs atomic.Int64

func newRig(t *testing.T, kind string) *rig {
	t.Helper()
	return newRigOn(t, kind, shared.clientOf(t, kind))
}

func newRigOn(t *testing.T, kind string, client redis.UniversalClient) *rig {
	t.Helper()
	return newRigWith(t, kind, client, line.Options{})
}

func newRigWith(t *testing.T, kind string, client redis.UniversalClient, opts line.Options) *rig {
	t.Helper()
	r := &rig{
		T: t, name: fmt.Sprintf("r%d", rigs.Add(1)), on: kind, Client: client,
		Tasks: asynq.NewClientFromRedisClient(client), Inspect: asynq.NewInspectorFromRedisClient(client),
	}
	r.Engine = r.newQueue(client, opts)
	return r
}

// newQueue returns one more Queue of the rig, with its index, which knows the number of lanes.
func (r *rig) newQueue(client redis.UniversalClient, opts line.Options) *line.Engine {
	r.Helper()
	opts.Index = r.index()
	engine, err := line.New(client, opts)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = engine.Close() })
	if err := engine.Agreement().Reach(r.Context()); err != nil {
		r.Fatal(err)
	}
	return engine
}

func newSolo(t *testing.T) *solo {
	t.Helper()
	return &solo{linetest.NewSolo(t)}
}

func soloOn(t *testing.T, client *redis.Client) *solo {
	t.Helper()
	return &solo{linetest.SoloOn(t, client)}
}

// solo is a Redis of its own with an engine on it, for tests that look at all of it.
type solo struct{ *linetest.Solo }

// limit bounds every wait for an event.
const limit = linetest.Limit

// key returns a key of the rig's own.
func (r *rig) key(key string) string { return r.name + ":" + key }

func (r *rig) registry(key string) string { return "railtoken:waiters:{" + r.key(key) + "}" }
func (r *rig) index() string              { return "railtoken:parked:" + r.name }

// task returns a task in the rig's own queue.
func (r *rig) task(id string) line.Task { return line.Task{Queue: r.name, ID: id} }

func hash(t line.Task) string  { return "asynq:{" + t.Queue + "}:t:" + t.ID }
func entry(t line.Task) string { return fmt.Sprintf("%d:%s%s", len(t.Queue), t.Queue, t.ID) }

// set sets fields of a task's hash.
func (r *rig) set(t line.Task, fields ...any) {
	r.Helper()
	if err := r.Client.HSet(r.Context(), hash(t), fields...).Err(); err != nil {
		r.Fatal(err)
	}
}

// Delayed adds a task that is not due for an hour.
func (r *rig) Delayed(id string, opts ...asynq.Option) line.Task {
	r.Helper()
	opts = append([]asynq.Option{asynq.Queue(r.name), asynq.TaskID(id), asynq.ProcessIn(time.Hour)}, opts...)
	info, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), opts...)
	if err != nil {
		r.Fatal(err)
	}
	return line.Task{Queue: info.Queue, ID: info.ID}
}

// crowd puts many in line for a key, of which asynq has each.
func (r *rig) crowd(key string, n int) {
	r.Helper()
	for begin := 0; begin < n; begin += 1000 {
		_, err := r.Client.Pipelined(r.Context(), func(pipe redis.Pipeliner) error {
			for i := begin; i < min(begin+1000, n); i++ {
				t, at := r.task(fmt.Sprint("crowd", i)), float64(time.Now().UnixMicro())
				pipe.HSet(r.Context(), hash(t), append(linetest.Record(line.Wait{Keys: []string{r.key(key)}}), "state", "retry")...)
				pipe.ZAdd(r.Context(), r.registry(key), redis.Z{Score: at, Member: entry(t)})
				pipe.ZAdd(r.Context(), r.index(), redis.Z{Score: at, Member: entry(t)})
			}
			return nil
		})
		if err != nil {
			r.Fatal(err)
		}
	}
}

// commands returns how many commands the server has run, those of scripts too.
func (r *rig) commands() (calls int) {
	r.Helper()
	stats, err := r.Client.InfoMap(r.Context(), "commandstats").Result()
	if err != nil {
		r.Fatal(err)
	}
	for _, stat := range stats["Commandstats"] {
		count, _, _ := strings.Cut(strings.TrimPrefix(stat, "calls="), ",")
		n, err := strconv.Atoi(count)
		if err != nil {
			r.Fatal(err)
		}
		calls += n
	}
	return calls
}

// Begin has a worker fetch a task, wherever it is.
func (r *rig) Begin(t line.Task) line.Task {
	r.Helper()
	if err := linetest.Fetch(r.Context(), r.Client, t); err != nil {
		r.Fatal(err)
	}
	return t
}

// begun adds a task that a worker has fetched.
func (r *rig) begun(id string, opts ...asynq.Option) line.Task {
	r.Helper()
	return r.Begin(r.Delayed(id, opts...))
}

// Park has a worker fetch a task, if none has, and then wait for a key. It would look for itself in an hour.
func (r *rig) Park(t line.Task, key string) line.Parked {
	r.Helper()
	return r.parkWith(t, key, line.ParkOptions{})
}

// parkFor does so for several keys: the first one that is released wakes it.
func (r *rig) parkFor(t line.Task, keys ...string) line.Parked {
	r.Helper()
	return r.parkWith(t, keys[0], line.ParkOptions{Also: r.keysOf(keys[1:])})
}

// keysOf returns keys of the rig's own.
func (r *rig) keysOf(names []string) (keys []string) {
	for _, name := range names {
		keys = append(keys, r.key(name))
	}
	return keys
}

// parkWith does so with options.
func (r *rig) parkWith(t line.Task, key string, opts line.ParkOptions) line.Parked {
	r.Helper()
	if opts.RetryAfter == 0 {
		opts.RetryAfter = time.Hour
	}
	message := r.Client.HGet(r.Context(), hash(r.Begin(t)), "msg").Val()
	place, err := r.Engine.Park(r.Context(), t, r.key(key), opts.Fetched(message))
	if err != nil {
		r.Fatal(err)
	}
	return place
}

// Wake wakes the next waiter.
func (r *rig) Wake(key string) line.Woken {
	r.Helper()
	woken, err := r.Engine.Wake(r.Context(), r.key(key), line.WakeOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return woken
}

// wakeTask wakes a task.
func (r *rig) wakeTask(key string, t line.Task) line.Woken {
	r.Helper()
	woken, err := r.Engine.WakeTask(r.Context(), r.key(key), t)
	if err != nil {
		r.Fatal(err)
	}
	return woken
}

// State returns asynq's state of a task.
func (r *rig) State(t line.Task) asynq.TaskState {
	r.Helper()
	info, err := r.Inspect.GetTaskInfo(t.Queue, t.ID)
	if err != nil {
		r.Fatal(err)
	}
	return info.State
}

// conflicts returns how many a task has met.
func (r *rig) conflicts(task line.Task) int { return conflictsOf(r.T, r.Client, task) }

func conflictsOf(t *testing.T, client redis.UniversalClient, task line.Task) int {
	t.Helper()
	return waitOf(t, client, task).Count
}

// wait returns the record of a task's wait.
func (r *rig) wait(task line.Task) line.Wait { return waitOf(r.T, r.Client, task) }

func waitOf(t *testing.T, client redis.UniversalClient, task line.Task) line.Wait {
	t.Helper()
	text, err := client.HGet(t.Context(), hash(task), line.WaitField).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return line.ParseWait(text)
}

// rewait changes the record of a task's wait.
func (r *rig) rewait(task line.Task, change func(*line.Wait)) {
	r.Helper()
	w := r.wait(task)
	change(&w)
	r.set(task, linetest.Record(w)...)
}

// Become waits for a task to be in a state.
func (r *rig) Become(t line.Task, want asynq.TaskState) {
	r.Helper()
	r.Until(fmt.Sprintf("task %s is %v", t, want), func() bool {
		info, err := r.Inspect.GetTaskInfo(t.Queue, t.ID)
		return err == nil && info.State == want
	})
}

// Remove deletes a task.
func (r *rig) Remove(t line.Task) {
	r.Helper()
	if err := r.Inspect.DeleteTask(t.Queue, t.ID); err != nil {
		r.Fatal(err)
	}
}

// Until awaits a condition.
func (r *rig) Until(what string, so func() bool) {
	r.Helper()
	linetest.Until(r.T, what, so)
}

// Waiting returns the IDs of a key's waiters.
func (r *rig) Waiting(key string) []string {
	r.Helper()
	return linetest.Waiting(r.T, r.Client, r.key(key))
}

// parked returns the entries of the index.
func (r *rig) parked() []string {
	r.Helper()
	entries, err := r.Client.ZRange(r.Context(), r.index(), 0, -1).Result()
	if err != nil {
		r.Fatal(err)
	}
	return entries
}

// inspector lists and reorders the rig's tasks.
func (r *rig) inspector() *delayqueue.Inspector { return (*delayqueue.Queue)(r.Engine).Inspector() }

func (r *solo) inspector() *delayqueue.Inspector { return (*delayqueue.Queue)(r.Engine).Inspector() }

// receive waits for a value.
func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	return redistest.Receive(t, c, limit)
}

// Serve runs an asynq server until the end of the test. What its handlers refuse is tried again in an hour.
func (r *rig) Serve(concurrency int, handler func(ctx context.Context, id string) error) {
	r.Helper()
	linetest.Serve(r.T, r.Engine, asynq.Config{Concurrency: concurrency, Queues: map[string]int{r.name: 1}}, handler)
}
