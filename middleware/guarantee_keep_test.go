package middleware_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// Every kind of task that asynq knows meets a held key several times, and each runs once in the end.
func TestNoTaskIsDroppedSilently(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	kinds := map[string][]asynq.Option{
		"plain":        nil,
		"no retries":   {asynq.MaxRetry(0)},
		"one retry":    {asynq.MaxRetry(1)},
		"retained":     {asynq.Retention(time.Hour)},
		"last of both": {asynq.MaxRetry(0), asynq.Retention(time.Hour)},
		"unique":       {asynq.Unique(time.Hour)},
		"deadline":     {asynq.Deadline(time.Now().Add(3 * time.Hour))},
		"timeout":      {asynq.Timeout(2 * time.Hour), asynq.MaxRetry(0)},
		"scheduled":    {asynq.ProcessIn(time.Second)},
	}
	const each = 3
	all := each * len(kinds)
	strategy := parkAlways()
	strategy.Delay = time.Second
	var mu sync.Mutex
	ran := map[string]int{}
	done := make(chan struct{}, 10*all)
	cfg := asynq.Config{Concurrency: 4, DelayedTaskCheckInterval: 50 * time.Millisecond}
	r.serve(r.options(strategy), cfg, func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		mu.Lock()
		ran[id]++
		mu.Unlock()
		done <- struct{}{}
		return nil
	})
	lease := r.hold("order:1")
	n := 0
	for kind, opts := range kinds {
		for i := range each {
			r.enqueue(payload{Key: "order:1", N: n}, append([]asynq.Option{asynq.TaskID(fmt.Sprint(kind, " ", i))}, opts...)...)
			n++
		}
	}
	r.events.await(t, 3*all, parked)
	r.giveBack(lease)
	for range all {
		receive(t, done)
	}
	mu.Lock()
	defer mu.Unlock()
	for kind := range kinds {
		for i := range each {
			if id := fmt.Sprint(kind, " ", i); ran[id] != 1 {
				t.Errorf("task %q ran %d times", id, ran[id])
			}
		}
	}
	for queue := range cfg.Queues {
		info, err := r.inspect.GetQueueInfo(queue)
		if err != nil || info.Archived > 0 || info.Failed > 0 {
			t.Errorf("queue %s: %+v, %v; want nothing archived or failed", queue, info, err)
		}
	}
}

func TestWaitingEndsAtEachLimitWithTheReason(t *testing.T) {
	t.Parallel()
	for bound, tt := range map[delayqueue.Limit]struct {
		bounds    delayqueue.Limits
		conflicts int
		waited    time.Duration
	}{
		delayqueue.ConflictsLimit: {delayqueue.Limits{Conflicts: 5}, 6, 4 * time.Second},
		delayqueue.AgeLimit:       {delayqueue.Limits{Age: 10 * time.Second}, 0, 10 * time.Second},
	} {
		t.Run(string(bound), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				r.hold("order:1")
				strategy := parkAlways()
				strategy.Delay, strategy.Limits = time.Second, tt.bounds
				r.serve(r.options(strategy), asynq.Config{Concurrency: 1}, func(context.Context, *asynq.Task) error { return nil })
				task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
				r.events.await(r, 1, ended(middleware.Archive))
				info := r.settled(task, asynq.TaskStateArchived)
				conflict, err := middleware.ParseConflict(info.Result)
				if err != nil {
					r.Fatal(err)
				}
				if conflict.Limit != bound || conflict.Waited < tt.waited || conflict.Key != "order:1" || conflict.Holder.Label != "the-holder" {
					r.Errorf("the reason is %+v", conflict)
				}
				if tt.conflicts > 0 && conflict.Conflicts != tt.conflicts {
					r.Errorf("%d conflicts, want %d", conflict.Conflicts, tt.conflicts)
				}
				if info.Retried != 0 {
					r.Errorf("retried %d times", info.Retried)
				}
			})
		})
	}
}

// The key is given back after each of the commands in turn that a task sends from its fetch to its place in asynq's
// retry set. Its own timer would be an hour.
func TestAParkDuringAReleaseStrandsNoTask(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const commands = 6 // of two tasks: each is fetched, refused and parked
	for _, retries := range []int{3, 0} {
		for after := range commands {
			t.Run(fmt.Sprintf("%d retries/after command %d", retries, after+1), func(t *testing.T) {
				t.Parallel()
				outside := newRig(t, server.Client(t))
				queue := strings.ReplaceAll(t.Name(), "/", ".")
				lease := outside.hold(queue)
				r := newRig(t, server.Client(t))
				released := make(chan struct{})
				release := func() {
					defer close(released)
					if err := lease.Release(context.Background()); err != nil {
						t.Error(err)
					}
					if !lease.ShouldNotify() {
						return
					}
					if _, err := outside.queue.Wake(context.Background(), queue, delayqueue.WakeOptions{}); err != nil {
						t.Error(err)
					}
				}
				var sent atomic.Int32
				r.countCommands(func(name string) {
					if name != "enqueue" && sent.Add(1) == int32(after)+1 {
						release()
					}
				})
				strategy := parkAlways()
				strategy.Delay = time.Hour
				ran := make(chan struct{}, 10)
				r.serve(r.options(strategy), asynq.Config{Concurrency: 1, Queues: map[string]int{queue: 1}},
					func(context.Context, *asynq.Task) error {
						ran <- struct{}{}
						return nil
					})
				began := time.Now()
				for range 2 {
					r.enqueue(payload{Key: queue}, asynq.Queue(queue), asynq.MaxRetry(retries))
				}
				receive(t, released)
				receive(t, ran)
				receive(t, ran)
				if took := time.Since(began); took > prompt {
					t.Errorf("they ran after %v", took)
				}
			})
		}
	}
}

// follower is the address of the Redis that serves at present, as a Sentinel would tell it.
type follower struct{ addr atomic.Value }

func (f *follower) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	addr, _ := f.addr.Load().(string)
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// A replica takes over: it has the tasks and the locks, and none of the scripts.
func TestScriptsAreSentAgainAfterAFailover(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	host, port, err := net.SplitHostPort(primary.Addr())
	if err != nil {
		t.Fatal(err)
	}
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	second := replica.Client(t)
	var current follower
	current.addr.Store(primary.Addr())
	client := primary.Client(t, func(o *redis.Options) { o.Dialer = current.dial })
	r := newRig(t, client)
	for began := time.Now(); client.Do(t.Context(), "wait", 1, 100).Val() != int64(1); {
		if time.Since(began) > limit {
			t.Fatal("the replica did not connect")
		}
	}

	const tasks = 3
	lease := r.hold("order:1")
	strategy := parkAlways()
	strategy.Delay = time.Hour
	ran := make(chan string, tasks+1)
	r.serve(r.options(strategy), asynq.Config{Concurrency: 2}, func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ran <- id
		return nil
	})
	var want []string
	for range tasks {
		task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
		r.settled(task, asynq.TaskStateRetry)
		want = append(want, task.ID)
	}
	if n := client.Do(t.Context(), "wait", 1, 10_000).Val(); n != int64(1) {
		t.Fatalf("the replica lags behind: %v", n)
	}
	primary.Kill()
	if err := second.Do(t.Context(), "replicaof", "no", "one").Err(); err != nil {
		t.Fatal(err)
	}
	if info := second.Info(t.Context(), "memory").Val(); !strings.Contains(info, "number_of_cached_scripts:0\r") {
		t.Fatalf("the new master knows scripts: %s", info)
	}
	current.addr.Store(replica.Addr())
	r.giveBack(lease)
	for _, id := range want {
		if got := receive(t, ran); got != id {
			t.Errorf("%s ran, want %s", got, id)
		}
	}
	// And a conflict after it is parked as ever.
	r.events.await(r, tasks, released)
	lease = r.hold("order:1")
	task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
	r.settled(task, asynq.TaskStateRetry)
	r.giveBack(lease)
	if got := receive(t, ran); got != task.ID {
		t.Errorf("%s ran, want %s", got, task.ID)
	}
}

// A handler gives its lease back itself, and returns when another task has the key.
func TestADoubleReleaseFreesNoOtherLock(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	strategy := parkAlways()
	strategy.Delay = time.Hour
	failed := make(chan error, 10)
	cfg := asynq.Config{Concurrency: 4, ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { failed <- err })}
	began, freed := make(chan string, 4), make(chan struct{})
	goOn := map[string]chan struct{}{"early": make(chan struct{}), "other": make(chan struct{}), "parked": nil, "late": nil}
	var inside, most atomic.Int32
	r.serve(r.options(strategy), cfg, func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		began <- id
		if id == "early" {
			lease, _ := locking.FromContext(ctx)
			<-goOn[id]
			if err := lease.Release(ctx); err != nil {
				t.Error(err)
			}
			close(freed)
			receive(t, began) // the other one has the key
			return nil
		}
		if n := inside.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer inside.Add(-1)
		if wait := goOn[id]; wait != nil {
			<-wait
		}
		return nil
	})
	add := func(id string) delayqueue.Task {
		return r.enqueue(payload{Key: "order:1"}, asynq.TaskID(id), asynq.MaxRetry(3))
	}
	early := add("early")
	receive(t, began)
	waiting := add("parked")
	r.settled(waiting, asynq.TaskStateRetry)
	close(goOn["early"])
	receive(t, freed)
	other := add("other")
	r.gone(early) // its release by the middleware is the second one
	lock := r.client.Get(t.Context(), "railtoken:lock:{order:1}").Val()
	if !strings.Contains(lock, "/other") {
		t.Errorf("the lock is %q, want that of the other task", lock)
	}
	late := add("late")
	r.events.await(t, 3, parked) // the parked task twice: it was woken for nothing, and the late one
	close(goOn["other"])
	for _, task := range []delayqueue.Task{other, waiting, late} {
		r.gone(task)
	}
	if n := most.Load(); n != 1 {
		t.Errorf("%d tasks ran at a time", n)
	}
	close(failed)
	for err := range failed {
		t.Errorf("failed: %v", err)
	}
}
