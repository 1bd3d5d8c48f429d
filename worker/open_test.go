package worker

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// typed returns a handler that tells which tasks it has had.
func typed(name string, ran chan<- string) asynq.Handler {
	return asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		ran <- name + " " + task.Type()
		return nil
	})
}

// byOrder finds the key of an order's task.
var byOrder = middleware.PayloadKey(func(o order) string { return "order:" + o.ID })

func TestTheLongestPatternOfATypeCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ran := make(chan string, 10)
		w, m := virtual(t, Config{})
		for pattern, key := range map[string]middleware.KeyFunc{"order:": byOrder, "order:audit:": nil} {
			if err := w.HandleTask(pattern, typed(pattern, ran), key); err != nil {
				t.Fatal(err)
			}
		}
		if err := Handle(w, "order:audit:eu", Handler[order]{Keys: order.keys, Run: func(context.Context, order) error {
			ran <- "typed"
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		start(t, w)
		for _, tt := range []struct{ kind, want string }{
			{"order:ship", "order: order:ship"}, {"order:audit:us", "order:audit: order:audit:us"}, {"order:audit:eu", "typed"},
		} {
			asynqtest.Enqueue(t, m, orderTask(t, tt.kind, "42"))
			if got := <-ran; got != tt.want {
				t.Errorf("a task of type %s was worked on by %q, want %q", tt.kind, got, tt.want)
			}
		}
		other := asynqtest.Enqueue(t, m, orderTask(t, "invoice", "42"))
		time.Sleep(time.Second)
		if info := asynqtest.Look(t, m, other); info == nil || !strings.Contains(info.LastErr, "handler not found") {
			t.Errorf("a task of a type without a handler is %+v", info)
		}
	})
}

func TestHandlersOfOneOrderExcludeEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, m := virtual(t, Config{})
		busy, done := 0, make(chan struct{}, 10)
		work := func() {
			busy++
			if busy > 1 {
				t.Error("two handlers work on an order")
			}
			time.Sleep(time.Second)
			busy--
			done <- struct{}{}
		}
		if err := w.HandleTask("legacy:", asynq.HandlerFunc(func(context.Context, *asynq.Task) error { work(); return nil }), byOrder); err != nil {
			t.Fatal(err)
		}
		handle(t, w, "audit", func(context.Context, order) error { work(); return nil })
		start(t, w)
		for range 3 {
			asynqtest.Enqueue(t, m, orderTask(t, "audit", "42"))
			asynqtest.Enqueue(t, m, orderTask(t, "legacy:allocate", "42"))
		}
		for range 6 {
			<-done
		}
	})
}

func TestMiddlewaresSeeATaskThatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, m := virtual(t, Config{Strategy: middleware.Requeue{}})
		var order []string
		waited := make(chan bool, 1)
		around := func(name string) asynq.MiddlewareFunc {
			return func(next asynq.Handler) asynq.Handler {
				return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					order = append(order, name)
					err := next.ProcessTask(ctx, task)
					if name == "outer" && err != nil {
						waited <- attach.Waits(err)
					}
					return err
				})
			}
		}
		if err := w.Use(around("outer"), around("inner")); err != nil {
			t.Fatal(err)
		}
		handle(t, w, "audit", nothing)
		lease, err := w.Locker().Acquire(t.Context(), []string{"order:42"}, locking.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lease.Release(context.Background()) }()
		start(t, w)
		asynqtest.Enqueue(t, m, orderTask(t, "audit", "42"))
		if !<-waited || !slices.Equal(order, []string{"outer", "inner"}) {
			t.Errorf("the middlewares ran in the order %v, and did not see a task that waits", order)
		}
		time.Sleep(time.Second)
		if waiters, err := w.Queue().Inspector().Waiters(t.Context(), "order:42", 10); err != nil || len(waiters) != 1 {
			t.Errorf("waiters %v, %v", waiters, err)
		}
	})
}

func TestWhatComesTooLateIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := virtual(t, Config{})
		ran := make(chan string, 1)
		if err := w.HandleTask("order:", typed("a", ran), byOrder); err != nil {
			t.Fatal(err)
		}
		wantParts(t, w.HandleTask("order:", typed("b", ran), byOrder), "order:", "there is one already")
		wantParts(t, w.HandleTask("", typed("b", ran), byOrder), "may be empty")
		wantParts(t, w.HandleTask("x", nil, byOrder), "may be empty")
		start(t, w)
		wantParts(t, w.HandleTask("late", typed("b", ran), byOrder), "has been started")
		wantParts(t, w.Use(), "has been started")
	})
}

func TestAClientThatWasGivenIsUsedAndStaysOpen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	ran := make(chan string, 1)
	w, err := New(Config{Redis: Redis{Client: client}, Asynq: func(c *asynq.Config) { c.LogLevel = asynq.FatalLevel }})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.HandleTask("audit", typed("it", ran), byOrder); err != nil {
		t.Fatal(err)
	}
	start(t, w)
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(orderTask(t, "audit", "42")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ran:
	case <-time.After(patience):
		t.Fatal("the task did not run")
	}
	if err := w.Shutdown(); err != nil {
		t.Error(err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the client was closed: %v", err)
	}
	_, err = New(Config{Redis: Redis{Client: client, Addr: "127.0.0.1:6379"}})
	wantParts(t, err, "several kinds of Redis at once")
}

func TestAUnixSocketAndTunedClientsWork(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "redis.sock")
	server := redistest.Start(t, "--unixsocket", socket)
	tuned := 0
	w, err := New(Config{Redis: Redis{Addr: socket, Tune: func(o *redis.UniversalOptions) { o.PoolSize, tuned = 3, tuned+1 }}})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan string, 1)
	if err := w.HandleTask("audit", typed("it", ran), byOrder); err != nil {
		t.Fatal(err)
	}
	start(t, w)
	if _, err := asynq.NewClientFromRedisClient(server.Client(t)).Enqueue(orderTask(t, "audit", "42")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ran:
	case <-time.After(patience):
		t.Fatal("the task did not run")
	}
	if err := w.Shutdown(); err != nil {
		t.Error(err)
	}
	if tuned != 2 {
		t.Errorf("%d clients were tuned, want those of the tasks and of the locks", tuned)
	}
}

var errGroup = errors.New("none")

func TestOtherSettingsOfAsynqReachIt(t *testing.T) {
	t.Parallel()
	w := idle(t, Config{Asynq: func(c *asynq.Config) {
		c.GroupAggregator = asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task { return nil })
		c.HealthCheckFunc = func(error) {}
		c.IsFailure = func(err error) bool { return errors.Is(err, errGroup) }
	}})
	c := w.attached.Config()
	if c.GroupAggregator == nil || c.HealthCheckFunc == nil || !c.IsFailure(errGroup) || c.IsFailure(&middleware.ConflictError{Outcome: middleware.Park}) {
		t.Errorf("asynq's configuration is %+v", c)
	}
}
