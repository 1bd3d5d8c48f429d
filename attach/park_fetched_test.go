package attach_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// hotKey is a server that has learned its handler's keys, and has one task that holds a key until end is closed.
type hotKey struct {
	*rig
	producer *attach.Producer
	runs     atomic.Int64 // of all tasks, from their fetch on, without those of the warm-up
	began    chan string  // IDs of the tasks whose handlers have begun
	parked   chan string  // IDs of the tasks that were parked
	end      chan struct{}
	holder   *asynq.TaskInfo
	sent     commands
}

func newHotKey(t *testing.T, opts attach.Options, observers ...func(middleware.Event)) *hotKey {
	t.Helper()
	return newRig(t).hotKey(opts, observers...)
}

func (r *rig) hotKey(opts attach.Options, observers ...func(middleware.Event)) *hotKey {
	t := r.T
	t.Helper()
	h := &hotKey{rig: r, began: make(chan string, 1000), parked: make(chan string, 1000), end: make(chan struct{})}
	h.sent.counts = map[string]int{}
	h.client.AddHook(&h.sent)
	h.producer = h.produce()
	opts.Observer = func(_ context.Context, e middleware.Event) {
		if e.Kind == middleware.Parked {
			h.parked <- e.Task.ID
		}
		for _, observe := range observers {
			observe(e)
		}
	}
	a := h.attach(asynq.Config{Concurrency: 4}, opts)
	locked := a.Lock(byPayloads)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		h.began <- id
		if strings.HasPrefix(id, "holder") {
			<-h.end
		}
		return nil
	}))
	h.serve(a.Client(), a.Config(), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		h.runs.Add(1)
		return locked.ProcessTask(ctx, task)
	}))
	for i := range 8 {
		h.record(h.producer, fmt.Sprintf("warm%d", i))
		receive(t, h.began)
	}
	h.wantNoLocks()
	h.holder = h.record(h.producer, "hot", asynq.TaskID("holder"))
	receive(t, h.began)
	h.runs.Store(0)
	return h
}

func TestATaskOfAHeldKeyIsParkedWithoutARun(t *testing.T) {
	t.Parallel()
	h := newHotKey(t, attach.Options{Strategy: middleware.Requeue{}})
	const tasks = 200
	for i := range tasks {
		h.record(h.producer, "hot", asynq.TaskID(fmt.Sprintf("t%d", i)))
	}
	for range tasks {
		receive(t, h.parked)
	}
	if n := h.sent.forget()["park"]; n == 0 || n > tasks/4 { // the first ones by a call of their own
		t.Errorf("%d of %d tasks were parked by calls of their own", n, tasks)
	}
	if n := h.runs.Load(); n > 0 {
		t.Errorf("%d tasks have had a run while their key was held", n)
	}
	h.record(h.producer, "cold")
	if id := receive(t, h.began); id == "holder" {
		t.Errorf("%s began", id)
	}
	close(h.end)
	for range tasks {
		receive(t, h.began)
	}
	h.wantNoLocks()
	if n := h.runs.Load() - 1; n > tasks*21/20 { // the cold one has had one, too
		t.Errorf("%d tasks had %d runs", tasks, n)
	}
	t.Logf("%d tasks had %d runs", tasks, h.runs.Load()-1)
}

// What becomes of a task that is refused when it is fetched, is what its strategy decides.
func TestOtherStrategiesDecideInARun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		strategy middleware.Strategy
		state    asynq.TaskState
	}{
		{middleware.FailFast{}, asynq.TaskStateArchived},
		{middleware.Requeue{Limits: delayqueue.Limits{Conflicts: 1}}, asynq.TaskStateRetry},
		{middleware.Wait{Max: time.Millisecond}.Then(middleware.Requeue{}), asynq.TaskStateRetry},
	} {
		t.Run(fmt.Sprintf("%T", tt.strategy), func(t *testing.T) {
			t.Parallel()
			h := newHotKey(t, attach.Options{Strategy: tt.strategy})
			info := h.record(h.producer, "hot", asynq.TaskID("refused"), asynq.MaxRetry(0))
			h.settled(info, tt.state)
			if n := h.runs.Load(); n != 1 {
				t.Errorf("it had %d runs, want 1", n)
			}
			close(h.end)
		})
	}
}

// asynq ends such a task by itself, without its handler.
func TestAnOverdueTaskIsNotParkedAgain(t *testing.T) {
	t.Parallel()
	h := newHotKey(t, attach.Options{Strategy: middleware.Requeue{Delay: 100 * time.Millisecond}})
	info := h.record(h.producer, "hot", asynq.TaskID("late"), asynq.MaxRetry(0), asynq.Deadline(time.Now().Add(2*time.Second)))
	receive(t, h.parked)
	h.settled(info, asynq.TaskStateArchived)
	close(h.end)
}

// The replies to fetches and parks are lost while a server is flooded with tasks of a held key, and then it shuts down.
func TestLostParksAndAShutdownStrandNoTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	producer := r.produce()
	proxy := redistest.NewProxy(t, r.client.Options().Addr)
	var calls atomic.Int64
	proxy.Cut(func(request, _ []byte) bool {
		parks := bytes.Contains(request, []byte("railtoken:parked")) || bytes.Contains(request, []byte("asynq:{default}:pending"))
		return parks && calls.Add(1)%3 == 0
	})
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 32})
	t.Cleanup(func() { _ = client.Close() })
	const tasks = 300
	began, end := make(chan string, tasks+10), make(chan struct{})
	serve := func(client *redis.Client) (stop func()) {
		a, err := attach.New(client, asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel},
			attach.Options{Strategy: middleware.Requeue{}})
		if err != nil {
			t.Fatal(err)
		}
		server := asynq.NewServerFromRedisClient(a.Client(), a.Config())
		if err := server.Start(a.Lock(byPayloads)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			began <- id
			if id == "holder" {
				<-end
			}
			return nil
		}))); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Shutdown)
		return func() {
			server.Shutdown()
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	stop := serve(client)
	for i := range 8 {
		r.record(producer, fmt.Sprintf("warm%d", i))
		receive(t, began)
	}
	r.record(producer, "hot", asynq.TaskID("holder"))
	receive(t, began)
	for i := range tasks {
		r.record(producer, "hot", asynq.TaskID(fmt.Sprintf("t%d", i)))
	}
	for r.client.ZCard(t.Context(), "railtoken:waiters:{hot}").Val() < tasks/2 {
		<-time.After(time.Millisecond)
	}
	time.AfterFunc(100*time.Millisecond, func() { close(end) })
	stop()
	if ids := r.client.LRange(t.Context(), "asynq:{default}:active", 0, -1).Val(); len(ids) > 0 {
		t.Errorf("%d tasks are active after the shutdown: %v", len(ids), ids)
	}
	defer serve(r.client)()
	seen := map[string]int{}
	for len(seen) < tasks {
		seen[receive(t, began)]++
	}
	for id, n := range seen {
		if n > 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
	r.wantNoLocks()
}

// While tasks of a key follow one another in memory, each lease ends with its hand-off.
func TestAHandOffIsReportedAsNoLoss(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	producer := r.produce()
	const tasks = 100
	for range tasks {
		r.record(producer, "hot")
	}
	var lost atomic.Int64
	ended := make(chan struct{}, tasks)
	a := r.attach(asynq.Config{Concurrency: 8}, attach.Options{Observer: func(_ context.Context, e middleware.Event) {
		if e.Kind == middleware.Lost {
			lost.Add(1)
		}
	}})
	var tokens []int64
	var mu sync.Mutex
	r.serve(a.Client(), a.Config(), a.Lock(byPayloads)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		lease, _ := locking.FromContext(ctx)
		token, err := lease.Fence(ctx)
		mu.Lock()
		tokens = append(tokens, token)
		mu.Unlock()
		if err != nil {
			return err
		}
		<-time.After(20 * time.Millisecond) // the work: long enough for the next task to be fetched meanwhile
		ended <- struct{}{}
		return nil
	})))
	for range tasks {
		receive(t, ended)
	}
	r.wantNoLocks()
	handedOff := 0
	for i, token := range tokens {
		if i > 0 && token == tokens[i-1]+1 {
			handedOff++
		}
	}
	if n := lost.Load(); n > 0 || !slices.IsSorted(tokens) || handedOff < tasks/2 {
		t.Errorf("%d leases were lost; %d tasks were handed theirs; the tokens are %v", n, handedOff, tokens)
	}
}

// A subscription outlives the tasks that wait, so that none of them is missed.
func TestAKeyThatNoTaskWaitsForCostsNoWake(t *testing.T) {
	t.Parallel()
	h := newHotKey(t, attach.Options{Strategy: middleware.Requeue{}})
	h.record(h.producer, "hot")
	receive(t, h.parked)
	close(h.end)
	receive(t, h.began)
	h.wantNoLocks()
	if n := h.client.Exists(t.Context(), "railtoken:lock:{hot}:notify").Val(); n != 1 {
		t.Fatal("there is no subscription")
	}
	h.sent.forget()
	for range 20 {
		h.record(h.producer, "hot")
		receive(t, h.began)
		h.wantNoLocks()
	}
	if counts := h.sent.forget(); counts["wake"] > 0 || counts["acknowledge"] == 0 {
		t.Errorf("%v", counts)
	}
}

// Release, wake and fetch are one script. Every task is reported as woken once. No lease is handed off, so that all tasks keep
// their turns.
func TestTasksOfAKeyWakeOneAnotherAsTheyAreDone(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]string{"one key": "hot", "two keys": "cold,hot"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const tasks = 40
			woken := make(chan string, 2*tasks)
			r := newRig(t)
			single, err := locking.NewSingle(r.client, locking.SingleOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = single.Close() })
			gate := locking.NewGate(single, locking.GateOptions{HandOffs: -1})
			h := r.hotKey(attach.Options{Locker: gate, RedisKeys: single.RedisKeys}, func(e middleware.Event) {
				if e.Kind == middleware.Woke && e.Cause == middleware.ByRelease && e.Key == "hot" {
					woken <- e.Next.ID
				}
			})
			var enqueued, began []string
			for range tasks {
				enqueued = append(enqueued, h.record(h.producer, keys).ID)
				receive(t, h.parked)
			}
			h.sent.forget()
			close(h.end)
			for range tasks {
				began = append(began, receive(t, h.began))
			}
			h.wantNoLocks()
			if !slices.Equal(began, enqueued) {
				t.Errorf("the tasks have run in the order %v, want %v", began, enqueued)
			}
			var told []string
			for range tasks {
				told = append(told, receive(t, woken))
			}
			slices.Sort(told)
			slices.Sort(enqueued)
			if !slices.Equal(told, enqueued) || len(woken) > 0 {
				t.Errorf("woken are %v, and %d more; want %v", told, len(woken), enqueued)
			}
			counts := h.sent.forget()
			if counts["wake"] > 0 || counts["lock"] > 0 || counts["park"] > 0 || counts["acknowledge"] == 0 {
				t.Errorf("%d tasks took the calls %v", tasks, counts)
			}
		})
	}
}

// A task that was woken may have run before the reply is read that says so.
func TestAnAcknowledgementWithoutWaitersWakesNone(t *testing.T) {
	t.Parallel()
	reading := make(chan struct{})
	read := sync.OnceFunc(func() { close(reading) })
	defer read()
	h := newHotKey(t, attach.Options{Strategy: middleware.Requeue{}}, func(e middleware.Event) {
		if e.Kind == middleware.Woke && e.Key == "a" { // what the same reply says of b is read afterwards
			<-reading
		}
	})
	h.record(h.producer, "a,b", asynq.TaskID("holder of both"))
	receive(t, h.began)
	for _, key := range []string{"a", "b"} {
		h.record(h.producer, key)
		receive(t, h.parked)
	}
	h.sent.forget()
	close(h.end)
	for range 2 {
		receive(t, h.began)
	}
	h.wantNoLocks()
	read()
	if n := h.sent.forget()["wake"]; n > 0 {
		t.Errorf("%d wakes were sent for keys without waiters", n)
	}
}
