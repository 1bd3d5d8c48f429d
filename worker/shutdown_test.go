package worker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

// outside returns a locker on a fake Redis that outlives the worker.
func outside(t testing.TB, m *miniredis.Miniredis) *locking.Single {
	t.Helper()
	l, err := locking.NewSingle(redistest.Patient(t, m), locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// free reports whether the lock of an order is free.
func free(t testing.TB, l *locking.Single, id string) bool {
	t.Helper()
	lease, err := l.Acquire(t.Context(), order{id}.keys(), locking.Options{})
	if errors.Is(err, locking.ErrHeld) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return true
}

func TestRunEndsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		running, finished := make(chan struct{}), false
		w, m := virtual(t, Config{})
		handle(t, w, "audit", func(ctx context.Context, _ order) error {
			close(running)
			time.Sleep(5 * time.Second) // less than ShutdownTimeout
			finished = ctx.Err() == nil
			return nil
		})
		task := asynqtest.Enqueue(t, m, orderTask(t, "audit", "42"), asynq.Retention(time.Hour))
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		<-running
		cancel()
		began := time.Now()
		if err := <-ended; err != nil {
			t.Errorf("Run returns %v", err)
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("the shutdown took %v; the task 5s", took)
		}
		if !finished {
			t.Error("the task was disturbed")
		}
		if info := asynqtest.Look(t, m, task); info == nil || info.State != asynq.TaskStateCompleted {
			t.Errorf("the task is %+v; want completed", info)
		}
	})
}

func TestRunReturnsWhyItCannotStart(t *testing.T) {
	t.Parallel()
	gone := unusedAddr(t)
	w, err := New(Config{Redis: Redis{Addr: gone}})
	if err != nil {
		t.Fatal(err)
	}
	handle(t, w, "audit", nothing)
	wantParts(t, w.Run(t.Context()), gone, "RAILTOKEN_REDIS_ADDR")
}

func TestRunThatIsToldToEndBeforeItBegan(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := idle(t, Config{Redis: Redis{Addr: unusedAddr(t)}})
	handle(t, w, "audit", nothing)
	if err := w.Run(ctx); err != nil {
		t.Errorf("Run returns %v", err)
	}
	wantParts(t, w.Start(t.Context()), "is closed")
}

func TestShutdownMayBeRepeated(t *testing.T) {
	t.Parallel()
	server, err := embeddedredis.Start() // real time: a bubble's stands still while a goroutine waits for a mutex
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	w, err := New(Config{Redis: Redis{Addr: server.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	handle(t, w, "audit", nothing)
	start(t, w)
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if err := w.Shutdown(); err != nil {
				t.Error(err)
			}
			if err := w.tasks.Ping(t.Context()).Err(); !errors.Is(err, redis.ErrClosed) {
				t.Errorf("a shutdown has returned before all was closed: %v", err)
			}
		})
	}
	all.Wait()
}

func TestShutdownBeforeStart(t *testing.T) {
	t.Parallel()
	w, err := New(local())
	if err != nil {
		t.Fatal(err)
	}
	handle(t, w, "audit", nothing)
	for range 2 {
		if err := w.Shutdown(); err != nil {
			t.Error(err)
		}
	}
	wantParts(t, w.Start(t.Context()), "is closed")
}

func TestShutdownAfterAStartThatFailed(t *testing.T) {
	t.Parallel()
	w, err := New(Config{Redis: Redis{Addr: unusedAddr(t)}})
	if err != nil {
		t.Fatal(err)
	}
	handle(t, w, "audit", nothing)
	if err := w.Start(t.Context()); err == nil {
		t.Fatal("started without a Redis")
	}
	if err := w.Shutdown(); err != nil {
		t.Errorf("the worker was closed by the start; Shutdown says %v", err)
	}
}

// TestShutdownRequeuesWhatDoesNotFinish: the handler heeds its context, so its key is free when Shutdown returns.
func TestShutdownRequeuesWhatDoesNotFinish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running := make(chan struct{})
		w, m := virtual(t, Config{ShutdownTimeout: 3 * time.Second})
		handle(t, w, "audit", func(ctx context.Context, _ order) error {
			close(running)
			<-ctx.Done()
			return ctx.Err()
		})
		other := outside(t, m)
		start(t, w)
		task := asynqtest.Enqueue(t, m, orderTask(t, "audit", "42"))
		<-running
		if free(t, other, "42") {
			t.Fatal("the order is not locked while its task runs")
		}
		began := time.Now()
		if err := w.Shutdown(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("the shutdown took %v; want the ShutdownTimeout of 3s", took)
		}
		if info := asynqtest.Look(t, m, task); info == nil || info.State != asynq.TaskStatePending || info.Retried != 0 {
			t.Errorf("the task is %+v; want pending, with no retry used up", info)
		}
		if !free(t, other, "42") {
			t.Error("the order is still locked")
		}
	})
}

// abandoned is how long a shutdown waits for handlers that asynq has abandoned.
const abandoned = 5 * time.Second

// TestShutdownAwaitsWhatAsynqAbandons: asynq goes on when it has cancelled a handler's context; the lease lasts as long
// as the handler.
func TestShutdownAwaitsWhatAsynqAbandons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running := make(chan struct{})
		w, m := virtual(t, Config{ShutdownTimeout: time.Second})
		handle(t, w, "audit", func(ctx context.Context, _ order) error {
			close(running)
			<-ctx.Done()
			time.Sleep(abandoned - time.Second) // to tidy up
			return ctx.Err()
		})
		other := outside(t, m)
		start(t, w)
		asynqtest.Enqueue(t, m, orderTask(t, "audit", "42"))
		<-running
		began := time.Now()
		if err := w.Shutdown(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < abandoned || took > abandoned+time.Second {
			t.Errorf("the shutdown took %v; want 1s and %v", took, abandoned-time.Second)
		}
		if !free(t, other, "42") {
			t.Error("the order is still locked")
		}
	})
}

func TestShutdownGivesUpAHandlerThatHeedsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running, finish := make(chan struct{}), make(chan struct{})
		defer close(finish)
		log, lines := newLines()
		w, m := virtual(t, Config{ShutdownTimeout: time.Second, Logger: log})
		handle(t, w, "audit", func(context.Context, order) error {
			close(running)
			<-finish
			return nil
		})
		start(t, w)
		asynqtest.Enqueue(t, m, orderTask(t, "audit", "42"))
		<-running
		began := time.Now()
		if err := w.Shutdown(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > abandoned+2*time.Second {
			t.Errorf("the shutdown took %v", took)
		}
		if text := lines.all(); !strings.Contains(text, "ignore their cancelled context") {
			t.Errorf("nothing is said of the handler:\n%s", text)
		}
	})
}

func TestShutdownParksWhatWaitsInItsSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		waiting := make(chan struct{}, 1)
		w, m := virtual(t, Config{
			Strategy: middleware.Wait{Max: time.Hour},
			Observer: func(_ context.Context, e middleware.Event) {
				if e.Kind == middleware.Refused {
					select {
					case waiting <- struct{}{}:
					default:
					}
				}
			},
		})
		handle(t, w, "audit", func(context.Context, order) error {
			t.Error("ran although its order is locked")
			return nil
		})
		lease, err := outside(t, m).Acquire(t.Context(), order{"42"}.keys(), locking.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lease.Release(context.Background()) }()
		start(t, w)
		task := asynqtest.Enqueue(t, m, orderTask(t, "audit", "42"))
		<-waiting
		began := time.Now()
		if err := w.Shutdown(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the shutdown took %v", took)
		}
		if info := asynqtest.Look(t, m, task); info == nil || info.State != asynq.TaskStateRetry || info.Retried != 0 {
			t.Errorf("the task is %+v; want parked, with no retry used up", info)
		}
	})
}
