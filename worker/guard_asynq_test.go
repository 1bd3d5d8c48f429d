package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/redistest"
)

// bareServer starts asynq without a worker around it.
func bareServer(t *testing.T, c redis.UniversalClient, run asynq.HandlerFunc, mod ...func(*asynq.Config)) *asynq.Server {
	t.Helper()
	log, _ := newLines()
	cfg := asynq.Config{Concurrency: 10, TaskCheckInterval: DefaultTaskCheckInterval, Logger: asynqLogger{log}, LogLevel: asynq.FatalLevel}
	for _, m := range mod {
		m(&cfg)
	}
	s := asynq.NewServerFromRedisClient(c, cfg)
	if err := s.Start(run); err != nil {
		t.Fatal(err)
	}
	return s
}

// guardedOrBare runs a test with the guard in front of the hooks, and without it.
func guardedOrBare(t *testing.T, run func(t *testing.T, m *miniredis.Miniredis, c *redis.Client, guarded bool)) {
	t.Parallel()
	for _, guarded := range []bool{false, true} {
		t.Run(fmt.Sprintf("guarded=%t", guarded), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, _ := redistest.Virtual(t)
				c := patient(t, m)
				if guarded {
					c.AddHook(&asynqGuard{})
				}
				run(t, m, c, guarded)
			})
		})
	}
}

func TestAsynqStillNeedsTheGuardToAcknowledge(t *testing.T) {
	guardedOrBare(t, func(t *testing.T, m *miniredis.Miniredis, c *redis.Client, guarded bool) {
		var failed atomic.Bool
		c.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if kindOf(cmd) == ack && !failed.Swap(true) {
				return fail(cmd, errors.New("connection reset by peer"))
			}
			return next(ctx, cmd)
		}))
		var runs atomic.Int32
		s := bareServer(t, c, func(context.Context, *asynq.Task) error {
			runs.Add(1)
			return nil
		})
		defer s.Shutdown()
		task := enqueue(t, m, asynq.NewTask("audit", nil))

		time.Sleep(11 * time.Second) // the syncer goes to work every 5 s
		if !failed.Load() {
			t.Fatal("no acknowledgement was sent")
		}
		state := "done"
		if info := look(t, m, task); info != nil {
			state = info.State.String()
		}
		time.Sleep(5 * time.Minute) // asynq recovers a task that is not acknowledged within 2 min
		got := fmt.Sprintf("%s after the syncer, %d runs", state, runs.Load())

		want := "active after the syncer, 2 runs"
		if guarded {
			want = "done after the syncer, 1 runs"
		}
		if got != want {
			t.Errorf("one failed acknowledgement: %s; want %s", got, want)
		}
	})
}

func TestAsynqStillNeedsTheGuardToFetchSlowly(t *testing.T) {
	const many = 5000
	guardedOrBare(t, func(t *testing.T, m *miniredis.Miniredis, c *redis.Client, guarded bool) {
		var (
			fetches atomic.Int64
			began   = time.Now()
			spun    = make(chan time.Duration, 1) // how long it took to send many
		)
		c.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if kindOf(cmd) == fetch && fetches.Add(1) == many {
				spun <- time.Since(began)
				m.SetError("") // or virtual time would stand still for ever
			}
			return next(ctx, cmd)
		}))
		m.SetError(oom)
		s := bareServer(t, c, func(context.Context, *asynq.Task) error { return nil })
		defer s.Shutdown()
		time.Sleep(10 * time.Second)
		m.SetError("")
		sent := fetches.Load()

		select {
		case took := <-spun:
			if guarded {
				t.Errorf("%d fetches within %v", many, took)
			} else if took > time.Second {
				t.Errorf("asynq has slowed down by itself: %d fetches in %v", many, took)
			}
		default:
			if !guarded {
				t.Errorf("asynq has slowed down by itself: %d fetches in 10s", sent)
			} else if sent < 10 || sent > 30 { // 10 to 640 ms take 7, then it is one a second
				t.Errorf("%d fetches in 10 s; want some 16", sent)
			}
		}
	})
}

func TestGuardFetchesAgainWithinASecondOfAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ran := make(chan time.Time, 1)
		w, m := virtual(t, Config{})
		handle(t, w, "audit", func(context.Context, order) error {
			ran <- time.Now()
			return nil
		})
		start(t, w)
		time.Sleep(time.Second)
		m.SetError(oom)
		time.Sleep(time.Minute)
		m.SetError("")
		back := time.Now()
		enqueue(t, m, orderTask(t, "audit", "42"))
		if took := (<-ran).Sub(back); took > pauseMost+2*DefaultTaskCheckInterval {
			t.Errorf("the first task after an outage started after %v", took)
		}
	})
}

func TestGuardSlowsFetchesFromARedisThatIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	type fetched struct {
		at  time.Time
		err error
	}
	fetches := make(chan fetched, 1000)
	c := server.Client(t)
	c.AddHook(&asynqGuard{})
	c.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if kindOf(cmd) == fetch {
			fetches <- fetched{time.Now(), err}
		}
		return err
	}))
	ran := make(chan struct{}, 1)
	s := bareServer(t, c, func(context.Context, *asynq.Task) error {
		ran <- struct{}{}
		return nil
	})
	defer s.Shutdown()
	if err := admin.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}

	var last time.Time
	for n := int64(0); n < 6; {
		select {
		case f := <-fetches:
			if f.err == nil || errors.Is(f.err, redis.Nil) || redis.HasErrorPrefix(f.err, "NOSCRIPT") {
				if n > 0 {
					t.Fatalf("a full Redis answered a fetch with %v", f.err)
				}
				continue // sent before it was full
			}
			if !redis.IsOOMError(f.err) {
				t.Fatalf("a full Redis answered a fetch with %v", f.err)
			}
			if pause := f.at.Sub(last); n > 0 && pause < pauseAfter(n) {
				t.Errorf("fetch %d came %v after the one before; want at least %v", n+1, pause, pauseAfter(n))
			}
			last = f.at
			n++
		case <-time.After(patience):
			t.Fatalf("only %d fetches failed", n)
		}
	}

	if err := admin.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := asynq.NewClientFromRedisClient(admin).EnqueueContext(t.Context(), asynq.NewTask("audit", nil)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ran:
	case <-time.After(patience):
		t.Fatal("no task runs after memory was free again")
	}
}

func TestGuardHoldsUpNoAcknowledgement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const tasks = 30
		var down atomic.Bool
		w, m := virtual(t, Config{Concurrency: tasks}, hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if down.Load() {
				return fail(cmd, errors.New("connection refused"))
			}
			return next(ctx, cmd)
		}))
		var running sync.WaitGroup
		running.Add(tasks)
		finish := make(chan struct{})
		if err := Handle(w, "audit", Handler[order]{Unlocked: true, Run: func(context.Context, order) error {
			running.Done()
			<-finish
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		start(t, w)
		for range tasks {
			enqueue(t, m, orderTask(t, "audit", "42"))
		}
		running.Wait()
		down.Store(true)
		close(finish)
		began := time.Now()
		if err := w.Shutdown(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("a shutdown with %d acknowledgements that cannot be sent took %v", tasks, took)
		}
	})
}
