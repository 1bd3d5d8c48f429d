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
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// One reply in eight is cut while tasks come with their locks and end with them.
func TestLostRepliesStrandNoLock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const tasks = stranded
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
	s := r.serve(a.Client(), a.Config(), a.Lock(byPayloads)(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		began <- string(task.Payload())
		if !strings.HasPrefix(string(task.Payload()), "warm") {
			<-end
		}
		return nil
	})))
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
	for began := time.Now(); time.Since(began) < released; <-time.After(5 * time.Millisecond) {
		locks = slices.DeleteFunc(r.client.Keys(t.Context(), "railtoken:lock:*").Val(), func(key string) bool { return strings.HasSuffix(key, ":fence") })
		if len(locks) == 0 {
			break
		}
	}
	if active := r.client.LLen(t.Context(), "asynq:{default}:active").Val(); len(locks) > 0 || active > 0 {
		t.Errorf("%d tasks are active, and locked is %v", active, locks)
	}
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
