package middleware_test

import (
	"context"
	"errors"
	"strings"
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

func ofKind(kind middleware.EventKind) func(middleware.Event) bool {
	return func(e middleware.Event) bool { return e.Kind == kind }
}

func wokeBy(cause middleware.WakeCause) func(middleware.Event) bool {
	return func(e middleware.Event) bool { return e.Kind == middleware.Woke && e.Cause == cause }
}

// count returns how many events fit until now.
func (e *events) count(fits func(middleware.Event) bool) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.all {
		if fits(ev) {
			n++
		}
	}
	return n
}

func TestAWaitHasOneRefusedAndItsTime(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]middleware.Strategy{
		"parked":   middleware.Requeue{Delay: 2 * time.Second},
		"in order": middleware.Requeue{Delay: 2 * time.Second, Order: middleware.FIFO},
		"in slot":  middleware.Wait{Max: 3 * time.Second}.Then(middleware.Requeue{Delay: 2 * time.Second}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				lease := r.hold("order:1")
				fails := errors.New("it fails once")
				r.serve(r.options(s), asynq.Config{TaskCheckInterval: lookSeldom, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second }}, func(ctx context.Context, _ *asynq.Task) error {
					<-time.After(5 * time.Second)
					err := fails
					fails = nil
					return err
				})
				task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
				refused := r.events.await(r, 1, ofKind(middleware.Refused))[0]
				if refused.Holder == nil || refused.Task != task || refused.Key != "order:1" {
					r.Errorf("%+v", refused)
				}
				r.events.await(r, 3, parked)
				<-time.After(20 * time.Second) // it looks again each two
				if n := r.events.count(ofKind(middleware.Refused)); n != 1 {
					r.Errorf("refused %d times", n)
				}
				r.giveBack(lease)
				acquired := r.events.await(r, 1, ofKind(middleware.Acquired))[0]
				r.about("acquired", acquired.Waited, acquired.At.Sub(refused.At))
				if e := r.events.await(r, 1, ofKind(middleware.Released))[0]; e.Held < 5*time.Second || e.Held > 6*time.Second || e.Err != nil {
					r.Errorf("%+v", e)
				}
				lease = r.hold("order:1") // another wait begins
				r.events.await(r, 2, ofKind(middleware.Refused))
				r.giveBack(lease)
				r.gone(task)
				if n := r.events.count(ofKind(middleware.Refused)); n != 2 {
					r.Errorf("refused %d times in two waits", n)
				}
			})
		})
	}
}

func TestAcquiredTellsTimeSinceTheRelease(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		strategy  middleware.Strategy
		most      time.Duration // after the release; zero if it is not known
		unwatched bool
	}{
		"parked":   {middleware.Requeue{Delay: time.Hour}, time.Second, false},
		"by timer": {middleware.Requeue{Delay: time.Second}, 0, true},
		"in slot":  {middleware.Wait{Max: time.Hour, Initial: time.Hour, Interval: time.Hour}, time.Second, false}, // only a notification wakes it
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.Start(t).Client(t))
			lease := r.hold("order:1")
			opts := r.options(tc.strategy)
			r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
			r.enqueue(payload{Key: "order:1"})
			r.events.await(r, 1, ofKind(middleware.Refused))
			<-time.After(300 * time.Millisecond) // it waits
			released := time.Now()
			if tc.unwatched {
				_ = lease.Release(r.Context()) // and no task is woken
			} else {
				r.giveBack(lease)
			}
			e := r.events.await(r, 1, ofKind(middleware.Acquired))[0]
			if e.Backend != "redis" || e.Woken > tc.most || tc.most > 0 && (e.Woken <= 0 || e.Woken > e.At.Sub(released)) {
				r.Errorf("%v after the release: %+v", e.At.Sub(released), e)
			}
		})
	}
}

func TestAcquiredTellsHowLongItsAttemptTook(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	opts := r.options(nil)
	opts.Locker, opts.RedisKeys = slow{r.locker}, nil
	r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
	r.enqueue(payload{Key: "order:1"})
	if e := r.events.await(r, 1, ofKind(middleware.Acquired))[0]; e.Took < 20*time.Millisecond || e.Took > 10*time.Second || e.Woken != 0 || e.Backend != "middleware_test" {
		t.Errorf("%+v", e)
	}
}

// slow is a locker that takes its time.
type slow struct{ locking.Locker }

func (s slow) Acquire(ctx context.Context, keys []string, opts locking.Options) (*locking.Lease, error) {
	<-time.After(20 * time.Millisecond)
	return s.Locker.Acquire(ctx, keys, opts)
}

func TestParkedTellsQueueAndPosition(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.hold("order:1")
		r.serve(r.options(middleware.Requeue{}), asynq.Config{Concurrency: 1, Queues: map[string]int{"default": 1, "slow": 1}}, func(context.Context, *asynq.Task) error { return nil })
		for i, queue := range []string{"slow", "default", "slow"} {
			task := r.enqueue(payload{Key: "order:1"}, asynq.Queue(queue))
			if e := r.events.await(r, i+1, parked)[i]; e.Task != task || e.Ahead != i || e.Waiters != i+1 {
				r.Errorf("number %d: %+v", i, e)
			}
		}
	})
}

func TestAWakeTellsItsCause(t *testing.T) {
	t.Parallel()
	for cause, delay := range map[middleware.WakeCause]time.Duration{middleware.ByRelease: time.Hour, middleware.ByTimer: time.Second} {
		t.Run(string(cause), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				began, goOn := make(chan bool), make(chan bool)
				r.serve(r.options(middleware.Requeue{Delay: delay}), asynq.Config{Concurrency: 8}, func(context.Context, *asynq.Task) error {
					began <- true
					<-goOn
					return nil
				})
				r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
				<-began
				last := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
				r.events.await(r, 1, parked)
				if cause == middleware.ByTimer {
					<-time.After(3 * time.Second)
				}
				goOn <- true
				if e := r.events.await(r, 1, wokeBy(cause))[0]; e.Key != "order:1" || e.Next != last || (e.Task == last) != (cause == middleware.ByTimer) {
					r.Errorf("%+v", e)
				}
				<-began
				goOn <- true
			})
		})
	}
}

// The task that was woken is deleted before it comes; the Queue wakes the next.
func TestARepairedWakeIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	queue := r.attach(r.options(nil), asynq.Config{}).Queue()
	lease := r.hold("order:1")
	p := r.attached.Producer(nil)
	for _, id := range []string{"a", "b"} {
		if _, err := p.EnqueueContext(t.Context(), taskFor(t, "order:1"), attach.Keys("order:1"), attach.WhenHeld(middleware.Requeue{}), asynq.TaskID(id)); err != nil {
			t.Fatal(err)
		}
	}
	_ = lease.Release(t.Context())
	if _, err := queue.Wake(t.Context(), "order:1", delayqueue.WakeOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.inspect.DeleteTask("default", "a"); err != nil {
		t.Fatal(err)
	}
	if e := r.events.await(r, 1, wokeBy(middleware.ByRepair))[0]; e.Next.ID != "b" || e.Key != "order:1" || e.At.IsZero() || !e.WakeLost {
		t.Errorf("%+v", e)
	}
}

func TestAProducersWaitIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	r.hold("order:1")
	p := r.producer(func(o *attach.ProducerOptions) { o.Observer = r.events.Observe })
	for _, s := range []middleware.Strategy{middleware.FailFast{}, middleware.Requeue{}} {
		_, _ = p.EnqueueContext(t.Context(), taskFor(t, "order:1"), attach.WhenHeld(s), asynq.TaskID("a"))
	}
	for _, fits := range []func(middleware.Event) bool{ofKind(middleware.Refused), ended(middleware.NotEnqueued), parked} {
		for _, e := range r.events.await(r, 1, fits) {
			if e.Holder == nil || e.Key != "order:1" || e.Type != "test" || e.At.IsZero() || len(e.Keys) != 1 {
				t.Errorf("%+v", e)
			}
		}
	}
	// Its first run is refused again: the wait goes on.
	r.serve(r.options(middleware.Requeue{}), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
	if err := r.inspect.RunTask("default", "a"); err != nil {
		t.Fatal(err)
	}
	r.events.await(r, 2, parked)
	if n := r.events.count(ofKind(middleware.Refused)); n != 2 {
		t.Errorf("refused %d times in two waits", n)
	}
}

func TestALostLeaseIsTold(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.serve(r.options(nil), asynq.Config{}, func(ctx context.Context, _ *asynq.Task) error {
			r.client.Set(context.Background(), "railtoken:lock:{order:1}", "another program", time.Minute)
			<-ctx.Done()
			return nil
		})
		r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
		for _, kind := range []middleware.EventKind{middleware.Lost, middleware.Released} {
			if e := r.events.await(r, 1, ofKind(kind))[0]; !errors.Is(e.Err, locking.ErrLost) || e.Held <= 0 || e.Held > locking.DefaultTTL {
				r.Errorf("%+v", e)
			}
		}
		if n := r.events.count(ofKind(middleware.Lost)); n != 1 {
			r.Errorf("lost %d times", n)
		}
	})
}

func TestLocksThatCannotBeAskedAreTold(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(t *testing.T) *redis.Client{
		"unreachable": func(*testing.T) *redis.Client {
			return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
		},
		"ACL": func(t *testing.T) *redis.Client {
			t.Helper()
			server := redistest.Start(t)
			return server.Client(t, server.User(t, "tasks", "~asynq:*", "+@all"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.Start(t).Client(t))
			conn := client(t)
			defer conn.Close()
			locker, err := locking.NewSingle(conn, locking.SingleOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer locker.Close()
			opts := r.options(nil)
			opts.Locker, opts.RedisKeys = locker, nil
			r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
			r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
			e := r.events.await(r, 1, ofKind(middleware.Unavailable))[0]
			r.attached.Stop()
			if e.Err == nil || len(e.Keys) != 1 || name == "ACL" != strings.Contains(e.Err.Error(), "NOPERM") {
				t.Errorf("%+v", e)
			}
		})
	}
}

// unknowing is a Locker that does not know who holds a key.
type unknowing struct{ locking.Locker }

func (unknowing) Acquire(_ context.Context, keys []string, _ locking.Options) (*locking.Lease, error) {
	return nil, &locking.HeldError{Key: keys[0]}
}

func TestAnUnknownHolderIsLeftOut(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		opts := r.options(middleware.FailFast{})
		opts.Locker = unknowing{}
		r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
		r.enqueue(payload{Key: "order:1"})
		for _, kind := range []middleware.EventKind{middleware.Refused, middleware.Ended} {
			if e := r.events.await(r, 1, ofKind(kind))[0]; e.Holder != nil {
				r.Errorf("%+v", e)
			}
		}
	})
}
