package middleware_test

import (
	"context"
	"encoding/json"
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

// onEachProducer runs a test for locks in the script of the enqueue, for locks that are elsewhere, and on a Cluster.
func onEachProducer(t *testing.T, test func(r *rig, p *attach.Producer)) {
	t.Helper()
	for _, kind := range []string{"together", "apart", "cluster"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var client redis.UniversalClient
			if kind == "cluster" {
				client = redistest.StartCluster(t, 3).Client(t)
			} else {
				client = redistest.Start(t).Client(t)
			}
			r := newRig(t, client)
			test(r, r.producer(func(o *attach.ProducerOptions) {
				if kind == "together" {
					o.RedisKeys = r.locker.RedisKeys
				}
			}))
		})
	}
}

func (r *rig) producer(mod func(*attach.ProducerOptions)) *attach.Producer {
	opts := attach.ProducerOptions{Locker: r.locker, Keys: map[string]middleware.KeyFunc{
		"test": middleware.PayloadKey(func(p payload) string { return p.Key }),
	}}
	mod(&opts)
	p, err := attach.NewProducer(r.client, opts)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = p.Close() })
	return p
}

func taskFor(t testing.TB, key string) *asynq.Task {
	t.Helper()
	data, err := json.Marshal(payload{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return asynq.NewTask("test", data)
}

// size returns how many tasks asynq has in all states.
func (r *rig) size() int {
	r.Helper()
	info, err := r.inspect.GetQueueInfo("default")
	if err != nil && !strings.Contains(err.Error(), "does not exist") && !errors.Is(err, asynq.ErrQueueNotFound) {
		r.Fatal(err)
	}
	if info == nil {
		return 0
	}
	return info.Size
}

func TestNoStrategyAtTheEnqueueLeavesTheKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	p := r.producer(func(*attach.ProducerOptions) {})
	info, err := p.EnqueueContext(t.Context(), taskFor(t, "k"), attach.WhenHeld(nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.client.HGet(t.Context(), "asynq:{default}:t:"+info.ID, "railtoken:keys").Val(); got != "k" {
		t.Errorf("recorded are %q", got)
	}
	if _, err := p.EnqueueContext(t.Context(), taskFor(t, "k"), attach.Keys()); err == nil {
		t.Error("it was enqueued without a key")
	}
}

func TestAHeldKeyRefusesTheCallerAtOnce(t *testing.T) {
	t.Parallel()
	onEachProducer(t, func(r *rig, p *attach.Producer) {
		fail := attach.WhenHeld(middleware.FailFast{})
		lease := r.hold("order:1")
		for range 2 {
			info, err := p.EnqueueContext(r.Context(), taskFor(r, "order:1"), fail, asynq.TaskID("a"), asynq.Unique(time.Hour))
			conflict, ok := errors.AsType[*middleware.ConflictError](err)
			if !ok || info != nil {
				r.Fatalf("%+v, %v", info, err)
			}
			if conflict.Key != "order:1" || !strings.Contains(conflict.Holder.Label, "the-holder") || conflict.RetryAfter <= 0 || conflict.RetryAfter > locking.DefaultTTL ||
				conflict.Outcome != middleware.NotEnqueued || conflict.Type != "test" || errors.Is(err, asynq.SkipRetry) {
				r.Errorf("%#v", conflict)
			}
		}
		if n := r.size(); n != 0 {
			r.Errorf("%d tasks are there", n)
		}
		if _, err := p.EnqueueContext(r.Context(), taskFor(r, "order:1")); err != nil {
			r.Errorf("without WhenHeld: %v", err)
		}
		if err := lease.Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		info, err := p.EnqueueContext(r.Context(), taskFor(r, "order:1"), fail, asynq.TaskID("a"), asynq.Unique(time.Hour))
		if err != nil || info.ID != "a" || info.State != asynq.TaskStatePending {
			r.Errorf("of a free key: %+v, %v", info, err)
		}
		r.hold("order:1") // nothing is left of the look
	})
}

func TestAHeldKeyParksTheTaskWithoutARun(t *testing.T) {
	t.Parallel()
	onEachProducer(t, func(r *rig, p *attach.Producer) {
		r.hold("order:2")
		lease := r.hold("order:1")
		ran := make(chan int, 9)
		r.serve(r.options(middleware.Requeue{}), asynq.Config{}, func(ctx context.Context, _ *asynq.Task) error {
			n, _ := asynq.GetRetryCount(ctx)
			ran <- n
			return nil
		})
		opts := []asynq.Option{attach.WhenHeld(middleware.Requeue{}), asynq.TaskID("a"), asynq.MaxRetry(0), asynq.Unique(time.Hour), asynq.Retention(time.Hour)}
		info, err := p.EnqueueContext(r.Context(), taskFor(r, "order:1"), opts...)
		if err != nil || info.State != asynq.TaskStateRetry {
			r.Fatalf("%+v, %v", info, err)
		}
		if waiters, err := r.queue.Inspector().Waiters(r.Context(), "order:1", 9); err != nil || len(waiters) != 1 || waiters[0].Task.ID != "a" {
			r.Fatalf("%+v, %v", waiters, err)
		}
		if _, err := p.EnqueueContext(r.Context(), taskFor(r, "order:1"), opts[0], asynq.Unique(time.Hour)); !errors.Is(err, asynq.ErrDuplicateTask) {
			r.Errorf("a duplicate gives %v", err)
		}
		began := time.Now()
		r.giveBack(lease)
		if n := receive(r, ran); n != 0 || time.Since(began) > 5*time.Second { // its timer would take 30 s
			r.Errorf("it ran with %d retries, %v after the release", n, time.Since(began))
		}
		if done := r.settled(delayqueue.Task{Queue: "default", ID: "a"}, asynq.TaskStateCompleted); done.Retried != 0 || done.MaxRetry != 0 {
			r.Errorf("%+v", done)
		}
	})
}

// freeing is a Locker that gives a key back as soon as it has refused it.
type freeing struct {
	locking.Locker
	lease *locking.Lease
}

func (f *freeing) Acquire(ctx context.Context, keys []string, o locking.Options) (*locking.Lease, error) {
	lease, err := f.Locker.Acquire(ctx, keys, o)
	if err != nil && f.lease != nil {
		_ = f.lease.Release(context.WithoutCancel(ctx))
		f.lease = nil
	}
	return lease, err
}

func TestAKeyThatIsFreedMeanwhileIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	onEachProducer(t, func(r *rig, _ *attach.Producer) {
		p := r.producer(func(o *attach.ProducerOptions) { o.Locker = &freeing{r.locker, r.hold("order:1")} })
		_, err := p.EnqueueContext(r.Context(), taskFor(r, "order:1"), attach.WhenHeld(middleware.Requeue{}), asynq.TaskID("a"))
		if err != nil {
			r.Fatal(err)
		}
		r.settled(delayqueue.Task{Queue: "default", ID: "a"}, asynq.TaskStatePending)
	})
}

func TestTheHandlersKeysCount(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	p := r.producer(func(*attach.ProducerOptions) {})
	ran := make(chan []string, 1)
	r.serve(r.options(nil), asynq.Config{}, func(ctx context.Context, _ *asynq.Task) error {
		lease, _ := locking.FromContext(ctx)
		ran <- lease.Keys()
		return nil
	})
	for _, recorded := range []asynq.Option{attach.Keys("another", "key"), nil} {
		opts := []asynq.Option{asynq.MaxRetry(0)}
		if recorded != nil {
			opts = append(opts, recorded)
		}
		if _, err := p.EnqueueContext(t.Context(), taskFor(t, "order:1"), opts...); err != nil {
			t.Fatal(err)
		}
		if keys := receive(t, ran); len(keys) != 1 || keys[0] != "order:1" {
			t.Errorf("it ran under %q", keys)
		}
	}
}

func TestAHandlerMayEnqueueForItsOwnKey(t *testing.T) {
	t.Parallel()
	onEachProducer(t, func(r *rig, p *attach.Producer) {
		ran := make(chan error, 2)
		r.serve(r.options(middleware.Requeue{}), asynq.Config{}, func(ctx context.Context, _ *asynq.Task) error {
			var err error
			if id, _ := asynq.GetTaskID(ctx); id == "first" {
				_, err = p.EnqueueContext(ctx, taskFor(r, "order:1"), attach.WhenHeld(middleware.Requeue{}), asynq.TaskID("next"))
			}
			ran <- err
			return nil
		})
		if _, err := p.EnqueueContext(r.Context(), taskFor(r, "order:1"), asynq.TaskID("first")); err != nil {
			r.Fatal(err)
		}
		for range 2 {
			if err := receive(r, ran); err != nil {
				r.Error(err)
			}
		}
	})
}

func TestWhatCannotBeDecidedIsAnError(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	held := attach.WhenHeld(middleware.FailFast{})
	for name, tt := range map[string]struct {
		task *asynq.Task
		opts []asynq.Option
		want string
	}{
		"no task":       {opts: []asynq.Option{held}, want: "nil"},
		"no keys":       {task: asynq.NewTask("other", nil), opts: []asynq.Option{held}, want: "needs the keys"},
		"an empty key":  {task: taskFor(t, ""), want: "key is empty"},
		"due later":     {task: taskFor(t, "k"), opts: []asynq.Option{held, asynq.ProcessIn(time.Hour)}, want: "runs later"},
		"a group":       {task: taskFor(t, "k"), opts: []asynq.Option{held, asynq.Group("g")}, want: "in a group"},
		"an order":      {task: taskFor(t, "k"), opts: []asynq.Option{attach.WhenHeld(middleware.Requeue{Order: middleware.FIFO})}, want: "order"},
		"another queue": {task: taskFor(t, "k"), opts: []asynq.Option{attach.WhenHeld(middleware.Requeue{Queue: "q"})}, want: "transfer"},
		"bad strategy":  {task: taskFor(t, "k"), opts: []asynq.Option{attach.WhenHeld(middleware.Requeue{Delay: -1})}, want: "negative"},
	} {
		p := r.producer(func(*attach.ProducerOptions) {})
		if info, err := p.EnqueueContext(t.Context(), tt.task, tt.opts...); err == nil || info != nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
	if n := r.size(); n != 0 {
		t.Errorf("%d tasks are there", n)
	}
}

func TestUnreachableLocksEnqueueNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	locker, err := locking.NewSingle(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1}), locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	p := r.producer(func(o *attach.ProducerOptions) { o.Locker = locker })
	if _, err := p.EnqueueContext(t.Context(), taskFor(t, "k"), attach.WhenHeld(middleware.FailFast{})); !errors.Is(err, locking.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if n := r.size(); n != 0 {
		t.Errorf("%d tasks are there", n)
	}
}
