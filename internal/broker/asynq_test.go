package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// bareServer starts a server of asynq.
func bareServer(t *testing.T, c redis.UniversalClient, run asynq.HandlerFunc,
	mod ...func(*asynq.Config),
) *asynq.Server {
	t.Helper()
	cfg := asynq.Config{Concurrency: 10, TaskCheckInterval: 50 * time.Millisecond, LogLevel: asynq.FatalLevel}
	for _, m := range mod {
		m(&cfg)
	}
	s := asynq.NewServerFromRedisClient(c, cfg)
	if err := s.Start(run); err != nil {
		t.Fatal(err)
	}
	return s
}

// guardedOrBare runs a test with a Conn between asynq and a client with hooks, and without it.
func guardedOrBare(t *testing.T, run func(t *testing.T, m *miniredis.Miniredis, c *redis.Client,
	asynqs redis.UniversalClient, guarded bool),
) {
	t.Parallel()
	for _, guarded := range []bool{false, true} {
		t.Run(fmt.Sprintf("guarded=%t", guarded), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, _ := redistest.Virtual(t)
				c := redistest.Patient(t, m)
				asynqs := redis.UniversalClient(c)
				if guarded {
					asynqs = New(c, Options{Queues: numbered(1)})
				}
				run(t, m, c, asynqs, guarded)
			})
		})
	}
}

func TestAsynqStillNeedsTheConnToAcknowledge(t *testing.T) {
	guardedOrBare(t, func(t *testing.T, m *miniredis.Miniredis, c *redis.Client, asynqs redis.UniversalClient,
		guarded bool,
	) {
		var failed atomic.Bool
		c.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if kindOf(cmd) == Ack && !failed.Swap(true) {
				return redistest.Fail(cmd, errors.New("connection reset by peer"))
			}
			return next(ctx, cmd)
		}))
		var runs atomic.Int32
		s := bareServer(t, asynqs, func(context.Context, *asynq.Task) error {
			runs.Add(1)
			return nil
		})
		defer s.Shutdown()
		task := asynqtest.Enqueue(t, m, asynq.NewTask("audit", nil))

		time.Sleep(11 * time.Second) // the syncer goes to work every 5 s
		if !failed.Load() {
			t.Fatal("no acknowledgement was sent")
		}
		state := "done"
		if info := asynqtest.Look(t, m, task); info != nil {
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

func TestAsynqStillNeedsTheConnToFetchSlowly(t *testing.T) {
	const many = 5000
	guardedOrBare(t, func(t *testing.T, m *miniredis.Miniredis, c *redis.Client, asynqs redis.UniversalClient,
		guarded bool,
	) {
		var (
			fetches atomic.Int64
			began   = time.Now()
			spun    = make(chan time.Duration, 1) // how long it took to send many
		)
		c.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if kindOf(cmd) == Fetch && fetches.Add(1) == many {
				spun <- time.Since(began)
				m.SetError("") // or virtual time would stand still for ever
			}
			return next(ctx, cmd)
		}))
		m.SetError(oom)
		s := bareServer(t, asynqs, func(context.Context, *asynq.Task) error { return nil })
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

func TestFetchesFromAFullRedisAreSlowedDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	type fetched struct {
		at  time.Time
		err error
	}
	fetches := make(chan fetched, 1000)
	c := server.Client(t)
	c.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if kindOf(cmd) == Fetch {
			fetches <- fetched{time.Now(), err}
		}
		return err
	}))
	ran := make(chan struct{}, 1)
	s := bareServer(t, New(c, Options{Queues: numbered(1)}), func(context.Context, *asynq.Task) error {
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
	if _, err := asynq.NewClientFromRedisClient(admin).EnqueueContext(t.Context(),
		asynq.NewTask("audit", nil)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ran:
	case <-time.After(patience):
		t.Fatal("no task runs after memory was free again")
	}
}

func TestEveryScriptOfALifeIsRecognised(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Virtual(t)
		c := redistest.Patient(t, m)
		var mu sync.Mutex
		byKeys, bySum := map[Kind]map[string]bool{
			Ack: {}, Fetch: {}, Recover: {}, Stop: {}, Beat: {},
			Other: {},
		}, map[Kind]map[string]bool{Ack: {}, Fetch: {}, Recover: {}, Stop: {}, Beat: {}, Other: {}}
		c.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if sum, keys, ok := scriptOf(cmd); ok {
				mu.Lock()
				defer mu.Unlock()
				kind, known := KindOf(sum, keys)
				if !known {
					t.Errorf("a script of asynq is not known: %s of %v", sum, keys)
				}
				bySum[kind][sum] = true
				kind, _ = KindOf("another version of "+sum, keys)
				byKeys[kind][sum] = true
			}
			return next(ctx, cmd)
		}))
		s := bareServer(t, c, func(ctx context.Context, task *asynq.Task) error {
			switch task.Type() {
			case "fails":
				return errors.New("no")
			case "archived":
				return asynq.SkipRetry
			case "abandoned":
				<-ctx.Done()
			}
			return nil
		}, func(cfg *asynq.Config) { cfg.ShutdownTimeout = time.Second })
		asynqtest.Enqueue(t, m, asynq.NewTask("done", nil))
		asynqtest.Enqueue(t, m, asynq.NewTask("done and unique", nil), asynq.Unique(time.Minute))
		asynqtest.Enqueue(t, m, asynq.NewTask("retained", nil), asynq.Retention(time.Minute))
		asynqtest.Enqueue(t, m, asynq.NewTask("retained and unique", nil), asynq.Retention(time.Minute),
			asynq.Unique(time.Minute))
		asynqtest.Enqueue(t, m, asynq.NewTask("fails", nil))
		asynqtest.Enqueue(t, m, asynq.NewTask("archived", nil))
		asynqtest.Enqueue(t, m, asynq.NewTask("abandoned", nil))
		time.Sleep(2 * time.Minute) // every part of asynq has been at work
		s.Shutdown()

		mu.Lock()
		defer mu.Unlock()
		for name, scripts := range map[string]map[Kind]map[string]bool{"sums": bySum, "keys": byKeys} {
			if a, f, o := len(scripts[Ack]), len(scripts[Fetch]), len(scripts[Other]); a != 7 || f != 1 || o == 0 {
				t.Errorf("by their %s, %d scripts acknowledge, %d fetch and %d do neither; want 7, 1 and some", name, a,
					f, o)
			}
		}
	})
}

func TestAnUnsupportedAsynqIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		failing := &answers{look: func() error { return redis.Nil }}
		c := New(failing, Options{Interval: time.Hour, Queues: numbered(1), Plain: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		began := time.Now()
		for range 3 {
			c.EvalSha(t.Context(), "1234", []string{
				"asynq:{q}:pending", "asynq:{q}:paused", "asynq:{q}:active",
				"asynq:{q}:lease",
			})
		}
		c.EvalSha(t.Context(), "5678", []string{"asynq:{q}:active", "asynq:{q}:lease"})
		if n := strings.Count(log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings of an unknown asynq, want one:\n%s", n, log.String())
		}
		if took := time.Since(began); took < time.Hour-6*CheckInterval {
			t.Errorf("three fetches of an unknown asynq were paced for %v only", took)
		}
	})
}
