package attach_test

import (
	"bytes"
	"context"
	"errors"
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
	"github.com/railtoken/railtoken/internal/redistest"
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

// wantNoLocks waits until no key is locked and no task is left.
func (r *rig) wantNoLocks() {
	r.Helper()
	var locks, tasks []string
	for began := time.Now(); time.Since(began) < limit; <-time.After(5 * time.Millisecond) {
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
	switch key := fmt.Sprint(args[3]); {
	case strings.HasPrefix(key, "railtoken:lock:"):
		kind = "lock"
	case strings.HasSuffix(key, ":pending"):
		kind = "fetch"
	case strings.HasSuffix(key, ":active"):
		kind = "acknowledge"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[kind]++
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
	sent.mu.Lock()
	clear(sent.counts)
	sent.mu.Unlock()
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
	const tasks, keys = 600, 6
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

// One reply in eight is cut while tasks come with their locks and end with them.
func TestLostRepliesStrandNoLock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const tasks = 1000
	producer := r.produce()
	for i := range tasks {
		r.record(producer, fmt.Sprintf("k%d", i/2), asynq.MaxRetry(1))
	}
	proxy := redistest.NewProxy(t, r.client.Options().Addr)
	var replies, cuts atomic.Int64
	proxy.Cut(func(request, _ []byte) bool {
		if bytes.Contains(request, []byte("}:paused")) && replies.Add(1)%8 == 0 {
			cuts.Add(1)
			return true
		}
		return false
	})
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 32})
	t.Cleanup(func() { _ = client.Close() })
	a, err := attach.New(client, asynq.Config{
		Concurrency: 16, LogLevel: asynq.FatalLevel, DelayedTaskCheckInterval: 100 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
	}, attach.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	var mu sync.Mutex
	runs, at, ended, done := map[string]int{}, map[string]int{}, 0, make(chan struct{})
	r.serve(a.Client(), a.Config(), a.Lock(byPayloads)(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		key := string(task.Payload())
		mu.Lock()
		defer mu.Unlock()
		at[key]++
		if at[key] > 1 {
			t.Errorf("two at work on %s", key)
		}
		mu.Unlock()
		<-time.After(time.Millisecond) // the work
		mu.Lock()
		at[key]--
		runs[id]++
		if runs[id] == 1 && strings.HasSuffix(key, "7") {
			return errors.New("the first run fails")
		}
		ended++
		if ended == tasks {
			close(done)
		}
		return nil
	})))
	redistest.Receive(t, done, 2*limit)
	r.wantNoLocks()
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d replies were cut", cuts.Load())
	for id, n := range runs {
		if n > 2 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
	if cuts.Load() < 20 {
		t.Errorf("only %d replies were cut", cuts.Load())
	}
}

// Tasks that a server has in memory when it shuts down go back without their locks.
func TestAShutdownGivesBackLocksOfTasksInMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	producer := r.produce()
	a := r.attach(asynq.Config{Concurrency: 4, ShutdownTimeout: 100 * time.Millisecond}, attach.Options{})
	began, end := make(chan string, 100), make(chan struct{})
	s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
	if err := s.Start(a.Lock(byPayloads)(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		began <- string(task.Payload())
		if !strings.HasPrefix(string(task.Payload()), "warm") {
			<-end
		}
		return nil
	}))); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		r.record(producer, fmt.Sprintf("warm%d", i))
		receive(t, began)
	}
	r.wantNoLocks()
	for i := range 40 {
		r.record(producer, fmt.Sprintf("k%d", i))
	}
	for range 4 {
		receive(t, began)
	}
	close(end)
	s.Shutdown()
	var locks []string
	for began := time.Now(); time.Since(began) < limit; <-time.After(5 * time.Millisecond) {
		locks = slices.DeleteFunc(r.client.Keys(t.Context(), "railtoken:lock:*").Val(), func(key string) bool { return strings.HasSuffix(key, ":fence") })
		if len(locks) == 0 {
			break
		}
	}
	if active := r.client.LLen(t.Context(), "asynq:{default}:active").Val(); len(locks) > 0 || active > 0 {
		t.Errorf("%d tasks are active, and locked is %v", active, locks)
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

// An operator deletes the lock of a task at work, and another caller takes the key. What the handler did then does not
// count, and it runs again; unless it has committed its work under its token.
func TestATaskWhoseLockWasTakenIsNotDone(t *testing.T) {
	t.Parallel()
	for name, commits := range map[string]bool{"is not done": false, "has committed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.attach(asynq.Config{Concurrency: 2, DelayedTaskCheckInterval: 100 * time.Millisecond}, attach.Options{})
			began, goOn := make(chan int64, 4), make(chan struct{}, 4)
			r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				lease, _ := locking.FromContext(ctx)
				token, _ := lease.Fence(ctx)
				began <- token
				<-goOn
				if commits {
					lease.MarkCommitted()
				}
				return nil
			})))
			task := r.enqueue("order:1", asynq.MaxRetry(0))
			first := receive(t, began)
			if err := r.client.Del(t.Context(), "railtoken:lock:{order:1}").Err(); err != nil {
				t.Fatal(err)
			}
			single, err := locking.NewSingle(r.client, locking.SingleOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = single.Close() })
			other, err := single.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
			if err != nil {
				t.Fatal(err)
			}
			goOn <- struct{}{}
			if commits {
				r.wantGone(task)
				_ = other.Release(t.Context())
				return
			}
			r.settled(task, asynq.TaskStateRetry)
			if err := other.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if token := receive(t, began); token <= first {
				t.Errorf("token %d after %d", token, first)
			}
			goOn <- struct{}{}
			r.wantGone(task)
			r.wantNoLocks()
		})
	}
}

// wantGone waits until asynq has a task no more.
func (r *rig) wantGone(task *asynq.TaskInfo) {
	r.Helper()
	for began := time.Now(); time.Since(began) < limit; <-time.After(2 * time.Millisecond) {
		if _, err := r.inspect.GetTaskInfo(task.Queue, task.ID); errors.Is(err, asynq.ErrTaskNotFound) {
			return
		}
	}
	r.Fatal("the task is still there")
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
	other := asynq.NewServerFromRedisClient(b.Client(), b.Config())
	if err := other.Start(b.Lock(byPayloads)(handle)); err != nil {
		t.Fatal(err)
	}
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
	lock, err := middleware.Lock(middleware.Options{Locker: own, Key: byPayloads, Queue: a.Queue()})
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

// Redis goes away as a handler ends, and comes back when the lock has expired and another process has had the key. The
// work was done under the lock: it is not done again.
func TestADoneTaskOutlivesAnOutageLongerThanItsLock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client := redis.NewClient(&redis.Options{Addr: r.client.Options().Addr})
	t.Cleanup(func() { _ = client.Close() })
	var down atomic.Bool
	client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if down.Load() {
			return redistest.Fail(cmd, errors.New("connection reset by peer"))
		}
		return next(ctx, cmd)
	}))
	a, err := attach.New(client, asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel}, attach.Options{TTL: locking.MinTTL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	ran := make(chan struct{}, 10)
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		down.Store(true)
		ran <- struct{}{}
		return nil
	})))
	task := r.enqueue("order:1")
	receive(t, ran)
	single, err := locking.NewSingle(r.client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = single.Close() })
	other, err := locking.Wait(t.Context(), single, []string{"order:1"}, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	down.Store(false)
	r.wantGone(task)
	if err := other.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if len(ran) > 0 {
		t.Error("the task ran again")
	}
}
