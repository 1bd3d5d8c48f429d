package attach_test

import (
	"context"
	"errors"
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
	"github.com/railtoken/railtoken/middleware"
)

// outside are the ways in which work outside of tasks locks keys and then releases them.
var outside = map[string]func(ctx context.Context, l locking.Locker, keys []string, work func()) error{
	"Acquire": func(ctx context.Context, l locking.Locker, keys []string, work func()) error {
		lease, err := l.Acquire(ctx, keys, locking.Options{})
		if err != nil {
			return err
		}
		work()
		return lease.Release(ctx)
	},
	"Wait": func(ctx context.Context, l locking.Locker, keys []string, work func()) error {
		lease, err := locking.Wait(ctx, l, keys, locking.Options{})
		if err != nil {
			return err
		}
		work()
		return lease.Release(ctx)
	},
	"Do": func(ctx context.Context, l locking.Locker, keys []string, work func()) error {
		return locking.Do(ctx, l, keys, locking.Options{}, func(context.Context, *locking.Lease) error {
			work()
			return nil
		})
	},
	"Collect and Join": func(ctx context.Context, l locking.Locker, keys []string, work func()) error {
		leases, err := locking.Collect(ctx, l, keys, locking.Options{})
		if err != nil {
			return err
		}
		lease, err := locking.Join(ctx, leases, locking.Options{})
		if err != nil {
			return err
		}
		work()
		return lease.Release(ctx)
	},
}

func TestAReleaseOutsideOfTasksWakesTheNextOfEachKey(t *testing.T) {
	t.Parallel()
	for name, locked := range outside {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, open := range map[string]func(r *rig) locking.Locker{
				"the default": func(*rig) locking.Locker { return nil },
				"a Locker of its own": func(r *rig) locking.Locker {
					single, err := locking.NewSingle(r.client, locking.SingleOptions{})
					if err != nil {
						t.Fatal(err)
					}
					r.Cleanup(func() { _ = single.Close() })
					return single
				},
			} {
				t.Run(kind, func(t *testing.T) {
					t.Parallel()
					r := newRig(t)
					var mu sync.Mutex
					woken := map[string]int{}
					a := r.attach(asynq.Config{Concurrency: 4}, attach.Options{
						Locker: open(r), Strategy: middleware.Requeue{Delay: time.Hour},
						Observer: func(_ context.Context, e middleware.Event) {
							if e.Kind == middleware.Woke && e.Cause == middleware.ByRelease {
								mu.Lock()
								defer mu.Unlock()
								woken[e.Key]++
							}
						},
					})
					ran := make(chan string, 4)
					r.serve(a.Client(), a.Config(),
						a.Lock(byPayload)(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
							ran <- string(task.Payload())
							return nil
						})))
					err := locked(t.Context(), a.Locker(), []string{"a", "b"}, func() {
						for _, key := range []string{"a", "b"} {
							r.settled(r.enqueue(key, asynq.MaxRetry(0)), asynq.TaskStateRetry)
						}
					})
					if err != nil {
						t.Fatal(err)
					}
					if first, second := receive(t, ran), receive(t, ran); first == second {
						t.Errorf("%q ran twice", first)
					}
					mu.Lock()
					defer mu.Unlock()
					if woken["a"] != 1 || woken["b"] != 1 {
						t.Errorf("woken %v, want one task of each key", woken)
					}
				})
			}
		})
	}
}

// The tasks wait in another order than that of their sequence.
func TestAReleaseOutsideOfTasksKeepsTheSequence(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 4, Queues: map[string]int{"default": 1, "late": 1}}, attach.Options{
		Strategy: middleware.Requeue{Delay: time.Hour, Order: middleware.FIFO},
	})
	producer := a.Producer(nil)
	ran := make(chan string, 4)
	handler := a.Lock(middleware.FixedKey("k"))(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		ran <- string(task.Payload())
		return nil
	}))
	lease, err := a.Locker().Acquire(t.Context(), []string{"k"}, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := producer.EnqueueInOrder(t.Context(), "k", asynq.NewTask("test", []byte("first")), asynq.Queue("late"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.inspect.PauseQueue("late"); err != nil {
		t.Fatal(err)
	}
	second, err := producer.EnqueueInOrder(t.Context(), "k", asynq.NewTask("test", []byte("second")))
	if err != nil {
		t.Fatal(err)
	}
	r.serve(a.Client(), a.Config(), handler)
	r.settled(second, asynq.TaskStateRetry)
	if err := r.inspect.UnpauseQueue("late"); err != nil {
		t.Fatal(err)
	}
	r.settled(first, asynq.TaskStateRetry)
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if one, other := receive(t, ran), receive(t, ran); one != "first" || other != "second" {
		t.Errorf("%s ran before %s", one, other)
	}
}

// Redis refuses the first wakes, as it does during a failover.
func TestAWakeOutsideOfTasksIsRetried(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 2},
		attach.Options{Strategy: middleware.Requeue{Delay: time.Hour}})
	ran := make(chan string, 1)
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		ran <- string(task.Payload())
		return nil
	})))
	lease, err := a.Locker().Acquire(t.Context(), []string{"k"}, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.settled(r.enqueue("k"), asynq.TaskStateRetry)
	var refused atomic.Int64
	r.client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.Contains(cmd.String(), "railtoken:sequence:") && refused.Add(1) <= 3 {
			return redistest.Fail(cmd, errors.New("READONLY you may not write to a replica"))
		}
		return next(ctx, cmd)
	}))
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	receive(t, ran)
	if n := refused.Load(); n < 4 {
		t.Errorf("%d calls, want the refused ones and another", n)
	}
}

// A handler that locks a key of its own task by the outer Locker would wait for itself.
func TestTheLockerOfHandlersRefusesTheirOwnKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 2}, attach.Options{})
	told := make(chan error, 1)
	r.serve(a.Client(), a.Config(),
		a.Lock(byPayload)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			_, err := locking.Wait(ctx, a.Locker(), []string{"k"}, locking.Options{})
			told <- err
			return nil
		})))
	r.enqueue("k")
	if err := receive(t, told); !errors.Is(err, locking.ErrReentrant) {
		t.Errorf("%v, want ErrReentrant", err)
	}
}

// counted is a Locker that counts its attempts.
type counted struct {
	locking.Locker
	attempts atomic.Int32
}

func (c *counted) Acquire(ctx context.Context, keys []string, opts locking.Options) (*locking.Lease, error) {
	c.attempts.Add(1)
	return c.Locker.Acquire(ctx, keys, opts)
}

func TestAGivenLockerIsBehindOneGate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, gated := range map[string]func(l locking.Locker) locking.Locker{
		"a Locker": func(l locking.Locker) locking.Locker { return l },
		"a Gate":   func(l locking.Locker) locking.Locker { return locking.NewGate(l, locking.GateOptions{}) },
	} {
		own := &counted{Locker: elsewhere(t)}
		a := r.attach(asynq.Config{}, attach.Options{Locker: gated(own)})
		lease, err := a.Locker().Acquire(t.Context(), []string{"a"}, locking.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Locker().Acquire(t.Context(), []string{"a"}, locking.Options{}); !errors.Is(err, locking.ErrHeld) {
			t.Errorf("%s: error %v, want ErrHeld", name, err)
		}
		if n := own.attempts.Load(); n != 1 {
			t.Errorf("%s: %d attempts at the servers for a key of this process, want 1", name, n)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
