package attach_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// produce returns a Producer that records the payload of each task as its keys, separated by commas.
func (r *rig) produce() *attach.Producer {
	r.Helper()
	p, err := attach.NewProducer(r.client, attach.ProducerOptions{Keys: map[string]middleware.KeyFunc{"test": byPayloads}})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = p.Close() })
	return p
}

func byPayloads(_ context.Context, task *asynq.Task) ([]string, error) {
	return strings.Split(string(task.Payload()), ","), nil
}

// record enqueues a task whose keys are recorded.
func (r *rig) record(p *attach.Producer, keys string, opts ...asynq.Option) *asynq.TaskInfo {
	r.Helper()
	info, err := p.EnqueueContext(r.Context(), asynq.NewTask("test", []byte(keys)), opts...)
	if err != nil {
		r.Fatal(err)
	}
	return info
}

// released bounds the wait for a release, well below the TTL with which a lock ends by itself.
const released = 10 * time.Second

// wantNoLocks waits until no key is locked and no task is left.
func (r *rig) wantNoLocks() {
	r.Helper()
	var locks, tasks []string
	for began := time.Now(); time.Since(began) < released; <-time.After(5 * time.Millisecond) {
		locks = slices.DeleteFunc(r.client.Keys(r.Context(), "railtoken:lock:*").Val(), func(key string) bool {
			return strings.HasSuffix(key, ":fence") || strings.HasSuffix(key, ":notify")
		})
		if tasks = r.client.Keys(r.Context(), "asynq:{*}:t:*").Val(); len(locks)+len(tasks) == 0 {
			return
		}
	}
	r.Errorf("left are %d locks %v and %d tasks %v", len(locks), locks[:min(len(locks), 3)], len(tasks), tasks[:min(len(tasks), 3)])
}

// commands is a hook that counts the scripts that a client sends by the first key of each.
type commands struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *commands) count(cmd redis.Cmder) {
	args := cmd.Args()
	if cmd.Name() != "evalsha" || len(args) < 4 {
		return
	}
	kind := "else"
	keys, _ := args[2].(int)
	switch key := fmt.Sprint(args[3]); {
	case strings.HasPrefix(key, "railtoken:lock:") && len(args)-3-keys == 4:
		kind = "renew" // whoever holds a lock for long enough
	case strings.HasPrefix(key, "railtoken:lock:"):
		kind = "lock"
	case strings.HasSuffix(key, ":pending"):
		kind = "fetch"
	case strings.HasSuffix(key, ":active"):
		kind = "acknowledge"
	case strings.HasPrefix(key, "railtoken:waiters:"):
		kind = "wake"
	case strings.HasPrefix(key, "railtoken:sequence:"):
		kind = "place"
	case len(args) > 8 && strings.HasPrefix(fmt.Sprint(args[8]), "railtoken:waiters:"):
		kind = "park"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[kind]++
}

// forget returns the counts, and begins anew.
func (c *commands) forget() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := maps.Clone(c.counts)
	clear(c.counts)
	return counts
}

func (*commands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c.count(cmd)
		}
		return next(ctx, cmds)
	}
}

func TestATaskWithRecordedKeysCostsNoCallForItsLocks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const tasks, warm = 200, 8
	producer := r.produce()
	client := redis.NewClient(&redis.Options{Addr: r.client.Options().Addr})
	t.Cleanup(func() { _ = client.Close() })
	sent := &commands{counts: map[string]int{}}
	client.AddHook(sent)
	a, err := attach.New(client, asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel}, attach.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	var ran atomic.Int64
	ended := make(chan struct{}, tasks+warm)
	locked := a.Lock(byPayloads)
	r.serve(a.Client(), a.Config(), locked(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		lease, ok := locking.FromContext(ctx)
		if keys, _ := byPayloads(ctx, task); !ok || lease.Err() != nil || !slices.Equal(lease.Keys(), keys) {
			t.Errorf("the lease is %v, for %q", lease, keys)
		}
		for _, key := range lease.Keys() {
			if token, err := lease.FenceOf(ctx, key); err != nil || token <= 0 {
				t.Errorf("token %d, %v", token, err)
			}
		}
		ran.Add(1)
		ended <- struct{}{}
		return nil
	})))
	for i := range warm { // the server learns that the handler uses the recorded keys
		r.record(producer, fmt.Sprintf("warm%d", i))
		receive(t, ended)
	}
	r.wantNoLocks()
	sent.forget()
	for i := range tasks {
		r.record(producer, fmt.Sprintf("a%d,b%d", i, i))
	}
	for range tasks {
		receive(t, ended)
	}
	r.wantNoLocks()
	sent.mu.Lock()
	defer sent.mu.Unlock()
	t.Logf("%v for %d tasks", sent.counts, tasks)
	if n := sent.counts["lock"]; n > 0 {
		t.Errorf("%d calls for locks", n)
	}
	if n := sent.counts["acknowledge"]; n > tasks+5 {
		t.Errorf("%d acknowledgements for %d tasks", n, tasks)
	}
}

// Two servers of two processes share few keys, also two for a task. Each handler has its keys for itself, with a larger
// token than all before.
func TestRecordedKeysExclude(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const tasks, keys = excluded, 6
	producer := r.produce()
	for i := range tasks {
		key := fmt.Sprintf("k%d", i%keys)
		if i%7 == 0 {
			key += fmt.Sprintf(",k%d", (i+1+i%3)%keys)
		}
		r.record(producer, key)
	}
	var mu sync.Mutex
	at, last, ran := map[string]int{}, map[string]int64{}, map[string]int{}
	done := make(chan struct{})
	for range 2 {
		a := r.attach(asynq.Config{Concurrency: 8}, attach.Options{})
		r.serve(a.Client(), a.Config(), a.Lock(byPayloads)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			lease, _ := locking.FromContext(ctx)
			id, _ := asynq.GetTaskID(ctx)
			mu.Lock()
			for _, key := range lease.Keys() {
				at[key]++
				token, err := lease.FenceOf(ctx, key)
				if at[key] > 1 || err != nil || token <= last[key] {
					t.Errorf("%s: %d at work, token %d after %d, %v", key, at[key], token, last[key], err)
				}
				last[key] = token
			}
			mu.Unlock()
			<-time.After(time.Millisecond) // the work
			mu.Lock()
			defer mu.Unlock()
			for _, key := range lease.Keys() {
				at[key]--
			}
			ran[id]++
			if len(ran) == tasks && ran[id] == 1 {
				close(done)
			}
			return nil
		})))
	}
	redistest.Receive(t, done, 2*limit)
	r.wantNoLocks()
	mu.Lock()
	defer mu.Unlock()
	for id, n := range ran {
		if n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
}

// The keys that the producer has recorded are not those that the handler locks.
func TestAHandlerLocksItsOwnKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	producer := r.produce()
	a := r.attach(asynq.Config{Concurrency: 2}, attach.Options{})
	ran := make(chan []string, 20)
	own := func(_ context.Context, task *asynq.Task) ([]string, error) {
		key := string(task.Payload())
		if strings.HasPrefix(key, "other") {
			key = "mine"
		}
		return []string{key}, nil
	}
	r.serve(a.Client(), a.Config(), a.Lock(own)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		lease, _ := locking.FromContext(ctx)
		ran <- lease.Keys()
		return nil
	})))
	for i := range 4 {
		r.record(producer, fmt.Sprintf("warm%d", i))
		receive(t, ran)
	}
	for i := range 4 {
		r.record(producer, fmt.Sprintf("other%d", i))
		if keys := receive(t, ran); !slices.Equal(keys, []string{"mine"}) {
			t.Errorf("the handler has %v", keys)
		}
	}
	r.wantNoLocks()
}

// A task waits for the key of a task at work, and one that comes later is pending when that ends: the first goes first.
func TestATaskThatWaitsGoesBeforeOneThatComesLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	producer := r.produce()
	began, end := make(chan string, 20), make(chan struct{})
	handle := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		began <- id
		if !strings.HasPrefix(id, "warm") {
			<-end
		}
		return nil
	})
	a := r.attach(asynq.Config{Concurrency: 1}, attach.Options{})
	r.serve(a.Client(), a.Config(), a.Lock(byPayloads)(handle))
	for i := range 8 {
		r.record(producer, fmt.Sprintf("warm%d", i), asynq.TaskID(fmt.Sprintf("warm%d", i)))
		receive(t, began)
	}
	r.record(producer, "order:1", asynq.TaskID("holds"))
	receive(t, began)
	waits := r.record(producer, "order:1", asynq.TaskID("waits"))
	b := r.attach(asynq.Config{Concurrency: 1}, attach.Options{})
	other := r.serve(b.Client(), b.Config(), b.Lock(byPayloads)(handle))
	r.settled(waits, asynq.TaskStateRetry)
	other.Shutdown()
	r.record(producer, "order:1", asynq.TaskID("comes later"))
	close(end)
	if first, second := receive(t, began), receive(t, began); first != "waits" || second != "comes later" {
		t.Errorf("%q began before %q", first, second)
	}
	r.wantNoLocks()
}

// A handler has a Locker of its own, whose locks are not those that a fetch takes.
func TestAHandlersOwnLockerTakesItsLocks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	producer := r.produce()
	a := r.attach(asynq.Config{Concurrency: 1}, attach.Options{})
	own, err := locking.NewSingle(r.client, locking.SingleOptions{
		RedisKey: func(key string) string { return "own:{" + key + "}" },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Close() })
	lock, err := middleware.LockOn(&taskrun.Server{Queue: a.Queue()}, middleware.Options{Locker: own, Key: byPayloads}, taskrun.Group{})
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan []string, 20)
	r.serve(a.Client(), a.Config(), lock(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		key := "{" + string(task.Payload()) + "}"
		held <- slices.DeleteFunc([]string{"own:" + key, "railtoken:lock:" + key}, func(name string) bool {
			return r.client.Exists(ctx, name).Val() == 0
		})
		return nil
	})))
	for i := range 8 {
		key := fmt.Sprintf("k%d", i)
		r.record(producer, key)
		if got := receive(t, held); !slices.Equal(got, []string{"own:{" + key + "}"}) {
			t.Errorf("locked are %q", got)
		}
	}
}

// The value of a lock names the task, whatever bytes its ID has.
func TestALockIsThatOfItsTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	producer := r.produce()
	a := r.attach(asynq.Config{Concurrency: 1}, attach.Options{})
	renewed := make(chan error, 20)
	r.serve(a.Client(), a.Config(), a.Lock(byPayloads)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		lease, _ := locking.FromContext(ctx)
		renewed <- lease.Renew(ctx)
		return nil
	})))
	for i, id := range []string{"a", "b", "c", "\x00d", "e\x00", "ä %s %d", strings.Repeat("f", 1000)} {
		r.record(producer, fmt.Sprintf("k%d", i), asynq.TaskID(id))
		if err := receive(t, renewed); err != nil {
			t.Errorf("%.20q: %v", id, err)
		}
		r.wantNoLocks()
	}
}
