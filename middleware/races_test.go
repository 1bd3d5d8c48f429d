package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// bothKeys is the key function of tasks that need two keys.
func bothKeys(context.Context, *asynq.Task) ([]string, error) { return []string{"a", "b"}, nil }

// hooked is a Locker that calls after when an attempt was made.
type hooked struct {
	locking.Locker
	after func(attempt int, err error)
	n     atomic.Int32
}

func (h *hooked) Acquire(ctx context.Context, keys []string, opts locking.Options) (*locking.Lease, error) {
	lease, err := h.Locker.Acquire(ctx, keys, opts)
	if h.after != nil {
		h.after(int(h.n.Add(1)), err)
	}
	return lease, err
}

// Between the refusal by the first key and the park, that key is given back. The task must not wait for it, because
// no run will release it: it runs again, and waits for the other key, which is held.
func TestATaskWaitsForTheKeyThatIsStillHeld(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"parked": 3, "at its last attempt": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.Start(t).Client(t))
			first, second := r.hold("a"), r.hold("b")
			opts := r.options(middleware.Requeue{Delay: time.Hour})
			opts.Key = bothKeys
			opts.Locker = &hooked{Locker: r.locker, after: func(attempt int, _ error) {
				if attempt == 1 {
					r.giveBack(first)
				}
			}}
			ran := make(chan struct{})
			r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error {
				close(ran)
				return nil
			})
			r.enqueue(payload{}, asynq.MaxRetry(retries), asynq.Timeout(2*time.Hour))
			r.events.await(t, 1, func(e middleware.Event) bool { return parked(e) && e.Key == "b" })
			r.giveBack(second)
			receive(t, ran)
		})
	}
}

// With one queue for all conflicts, tasks that are enqueued in it run like others, and wait in it.
func TestATaskInTheQueueOfConflictsRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	lease := r.hold("held")
	var ran sync.WaitGroup
	ran.Add(4)
	opts := r.options(middleware.Requeue{Queue: "slow"})
	r.serve(opts, asynq.Config{Queues: map[string]int{"default": 1, "slow": 1}}, func(context.Context, *asynq.Task) error {
		ran.Done()
		return nil
	})
	r.enqueue(payload{Key: "free"}, asynq.Queue("slow"), asynq.MaxRetry(0))
	r.enqueue(payload{Key: "held"}, asynq.Queue("slow"), asynq.MaxRetry(3))
	r.enqueue(payload{Key: "held"}, asynq.Queue("slow"), asynq.MaxRetry(0))
	r.enqueue(payload{Key: "held"}, asynq.MaxRetry(3))
	r.events.await(t, 3, parked)
	r.giveBack(lease)
	done := make(chan struct{})
	go func() {
		ran.Wait()
		close(done)
	}()
	receive(t, done)
}

func TestALockOfAnotherProgramIsAConflictWhateverItsValueSays(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	value := strings.Repeat("A", 27) + ".zzzzzzzzzz.\x00label\n"
	r.client.Set(t.Context(), "railtoken:lock:{order:1}", value, time.Hour)
	r.serve(r.options(middleware.FailFast{}), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
	task := r.enqueue(payload{Key: "order:1"})
	info := r.settled(task, asynq.TaskStateArchived)
	if _, err := middleware.ParseConflict(info.Result); err != nil {
		t.Errorf("%v: %s", err, info.LastErr)
	}
}

func TestTooManyKeysAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	opts := r.options(nil)
	opts.Key = func(_ context.Context, task *asynq.Task) ([]string, error) {
		var keys []string
		err := json.Unmarshal(task.Payload(), &keys)
		return keys, err
	}
	r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
	var keys []string
	for n := range 102 {
		keys = append(keys, fmt.Sprint("k", n))
	}
	data, _ := json.Marshal(keys)
	info, err := r.tasks.Enqueue(asynq.NewTask("test", data))
	if err != nil {
		t.Fatal(err)
	}
	got := r.settled(delayqueue.Task{Queue: info.Queue, ID: info.ID}, asynq.TaskStateArchived)
	if !strings.Contains(got.LastErr, "102 keys, more than the 100 allowed") {
		t.Errorf("the last error is %q", got.LastErr)
	}
}

func TestPoisonPassesItsWakeOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	lease := r.hold("order:1")
	ran := make(chan struct{}, 2)
	r.serve(r.options(middleware.Requeue{Delay: time.Hour}), asynq.Config{Concurrency: 1}, func(context.Context, *asynq.Task) error {
		ran <- struct{}{}
		return nil
	})
	spoiled := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
	r.settled(spoiled, asynq.TaskStateRetry)
	next := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
	r.settled(next, asynq.TaskStateRetry)
	// What asynq keeps of the first task is changed so that it has no key any more.
	hash := "asynq:{default}:t:" + spoiled.ID
	msg := r.client.HGet(t.Context(), hash, "msg").Val()
	r.client.HSet(t.Context(), hash, "msg", strings.Replace(msg, `{"key":"order:1"`, `{"kex":"order:1"`, 1))
	r.giveBack(lease)
	r.settled(spoiled, asynq.TaskStateArchived)
	receive(t, ran)
}

// A handler is an hour late; Redis answers late; the lock servers are away for longer than the task has time: none of
// it may archive a task whose handler never ran.
func TestASlowAnswerIsNoFailure(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		opts := r.options(nil)
		opts.TTL = time.Second
		slow := true
		opts.Locker = lockerFunc(func(ctx context.Context, keys []string, o locking.Options) (*locking.Lease, error) {
			if slow {
				slow = false
				<-time.After(1500 * time.Millisecond)
				return nil, &locking.LostError{Keys: keys, Reason: locking.LossExpired}
			}
			return r.locker.Acquire(ctx, keys, o)
		})
		ran := make(chan struct{})
		r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error {
			close(ran)
			return nil
		})
		r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
		receive(r.T, ran)
	})
}

func TestAnOutageLongerThanTheTaskHasTimeIsNoFailure(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		var back atomic.Bool
		opts := r.options(nil)
		opts.Locker = lockerFunc(func(ctx context.Context, keys []string, o locking.Options) (*locking.Lease, error) {
			if !back.Load() {
				return nil, locking.ErrUnavailable
			}
			return r.locker.Acquire(ctx, keys, o)
		})
		ran := make(chan struct{}, 2)
		cfg := asynq.Config{Concurrency: 4, TaskCheckInterval: lookSeldom}
		r.serve(opts, cfg, func(context.Context, *asynq.Task) error {
			ran <- struct{}{}
			return nil
		})
		r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0), asynq.Timeout(3*time.Second))
		kept := r.enqueue(payload{Key: "order:2"}, asynq.MaxRetry(1), asynq.Timeout(3*time.Second))
		<-time.After(time.Minute)
		if info := r.info(kept); info.Retried != 0 {
			t.Errorf("retried %d times", info.Retried)
		}
		back.Store(true)
		receive(r.T, ran)
		receive(r.T, ran)
	})
}

func TestAServerThatHangsIsNoFailure(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		var back atomic.Bool
		opts := r.options(nil)
		opts.Locker = lockerFunc(func(ctx context.Context, keys []string, o locking.Options) (*locking.Lease, error) {
			if !back.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return r.locker.Acquire(ctx, keys, o)
		})
		ran := make(chan struct{}, 6)
		cfg := asynq.Config{Concurrency: 6, TaskCheckInterval: lookSeldom}
		r.serve(opts, cfg, func(context.Context, *asynq.Task) error {
			ran <- struct{}{}
			return nil
		})
		for _, timeout := range []time.Duration{time.Second, 4 * time.Second, 12 * time.Second} {
			r.enqueue(payload{Key: "order:" + timeout.String()}, asynq.MaxRetry(0), asynq.Timeout(timeout))
			kept := r.enqueue(payload{Key: "other:" + timeout.String()}, asynq.MaxRetry(1), asynq.Timeout(timeout))
			<-time.After(time.Minute)
			if info := r.info(kept); info.Retried != 0 {
				r.Errorf("timeout %v: retried %d times", timeout, info.Retried)
			}
		}
		back.Store(true)
		for range 6 {
			receive(r.T, ran)
		}
	})
}
