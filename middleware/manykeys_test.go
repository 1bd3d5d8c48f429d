package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// A task of many keys wakes for each of them. When Redis does not answer, its slot must not be held for that many
// timeouts.
func TestTheWakesOfManyKeysTogetherHoldASlotNoLongerThanOne(t *testing.T) {
	t.Parallel()
	const keys = 6
	server := redistest.Start(t)
	r := newRig(t, server.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true }))
	opts := r.options(middleware.Requeue{})
	opts.Key = func(_ context.Context, task *asynq.Task) (found []string, err error) {
		err = json.Unmarshal(task.Payload(), &found)
		return found, err
	}
	a := r.attach(opts, asynq.Config{Concurrency: keys + 1, ShutdownTimeout: time.Second})
	began, end, ended := make(chan struct{}), make(chan struct{}), make(chan time.Time, 1)
	handler := a.Lock(opts.Key)(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "holder" {
			close(began)
			<-end
		}
		return nil
	}))
	r.serveOn(a.Client(), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		if task.Type() == "holder" {
			defer func() { ended <- time.Now() }()
		}
		return handler.ProcessTask(ctx, task)
	}))
	t.Cleanup(server.Resume)
	put := func(kind string, keys ...string) {
		payload, _ := json.Marshal(keys)
		if _, err := r.tasks.Enqueue(asynq.NewTask(kind, payload)); err != nil {
			t.Fatal(err)
		}
	}
	all := []string{"a", "b", "c", "d", "e", "f"}
	put("holder", all...)
	receive(t, began)
	for _, key := range all {
		put("waiter", key)
	}
	r.until(time.Minute, "all are parked", func() bool { return r.client.ZCard(t.Context(), "asynq:{default}:retry").Val() == keys })
	server.Pause()
	returned := time.Now()
	close(end)
	if took := receive(t, ended).Sub(returned); took > 12*time.Second {
		t.Errorf("the slot was held for %v after the handler", took)
	}
}

// trips counts the round trips that release many locks or wake waiters.
type trips struct {
	runs atomic.Int64
	on   atomic.Bool
	n    atomic.Int64
}

func (c *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count(cmds...)
		return next(ctx, cmds)
	}
}

func (c *trips) count(cmds ...redis.Cmder) {
	counts := func(cmd redis.Cmder) bool {
		args := fmt.Sprint(cmd.Args())
		return strings.Contains(args, " railtoken:waiters:") || strings.Count(args, " railtoken:lock:") > 10
	}
	if c.on.Load() && slices.ContainsFunc(cmds, counts) {
		c.n.Add(1)
	}
}

func TestTheReleaseOfManyKeysTakesTwoRoundTrips(t *testing.T) {
	t.Parallel()
	for contended, want := range map[int]int64{0: 1, 1: 2, 5: 2} {
		t.Run(fmt.Sprint(contended, " contended"), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.Start(t).Client(t))
			all := make([]string, 50)
			for i := range all {
				all[i] = fmt.Sprint("key", i)
			}
			opts := r.options(middleware.Requeue{})
			opts.Key = func(_ context.Context, task *asynq.Task) (found []string, err error) {
				err = json.Unmarshal(task.Payload(), &found)
				return found, err
			}
			trips, ran, counted := &trips{}, make(chan string, contended), make(chan struct{})
			r.client.(*redis.Client).AddHook(trips)
			began, end := make(chan struct{}), make(chan struct{})
			released := make(chan int64, 1)
			opts.Observer = func(_ context.Context, e middleware.Event) {
				if e.Kind == middleware.Released && len(e.Keys) == len(all) {
					released <- trips.n.Load()
				}
			}
			r.serve(opts, asynq.Config{Concurrency: 10}, func(_ context.Context, task *asynq.Task) error {
				if task.Type() == "holder" {
					if trips.runs.Add(1) == 1 {
						return nil
					}
					close(began)
					<-end
					trips.on.Store(true)
					return nil
				}
				ran <- string(task.Payload())
				<-counted
				return nil
			})
			put := func(kind string, keys ...string) {
				payload, _ := json.Marshal(keys)
				if _, err := r.tasks.Enqueue(asynq.NewTask(kind, payload)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := r.queue.Wake(t.Context(), "another", delayqueue.WakeOptions{}); err != nil { // the server knows the scripts from now on
				t.Fatal(err)
			}
			put("holder", all...)
			receive(t, released)
			put("holder", all...)
			receive(t, began)
			for i := range contended {
				put("waiter", all[7*i])
			}
			r.until(time.Minute, "all are parked", func() bool { return int(r.client.ZCard(t.Context(), "asynq:{default}:retry").Val()) == contended })
			close(end)
			if got := receive(t, released); got > want {
				t.Errorf("the release and its wakes took %d round trips, want at most %d", got, want)
			}
			for range contended {
				receive(t, ran)
			}
			close(counted)
		})
	}
}
