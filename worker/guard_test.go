package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/redistest"
)

// oom is what a Redis answers at once when its memory is full.
const oom = "OOM command not allowed when used memory > 'maxmemory'."

// send gives a command to the guard alone. It returns whether the command may run, and for how long if there is a limit.
func send(ctx context.Context, cmd redis.Cmder) (runs bool, limit time.Duration) {
	_ = (&asynqGuard{}).ProcessHook(func(ctx context.Context, _ redis.Cmder) error {
		runs = ctx.Err() == nil
		if deadline, ok := ctx.Deadline(); ok {
			limit = time.Until(deadline)
		}
		return nil
	})(ctx, cmd)
	return runs, limit
}

func TestGuardKeepsToTheEndOfAsynqsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		done := redis.NewCmd(t.Context(), "evalsha", "1234", 3, "asynq:{q}:active", "asynq:{q}:lease", "asynq:{q}:t:1", "1")
		for _, tc := range []struct {
			name  string
			lease time.Duration
			runs  bool
			limit time.Duration
		}{
			{"a long lease", 20 * time.Second, true, ackTimeout},
			{"a lease about to end", 2 * time.Second, true, 2 * time.Second},
			{"a lease that has ended since", 0, false, 0},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), max(tc.lease, time.Second))
			cancel()
			if tc.lease == 0 {
				time.Sleep(time.Second)
			}
			if runs, limit := send(ctx, done); runs != tc.runs || limit != tc.limit {
				t.Errorf("an acknowledgement within %s runs: %t for %v; want %t for %v", tc.name, runs, limit, tc.runs, tc.limit)
			}
		}
	})
}

func TestGuardLeavesOtherCommandsTheirContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, cmd := range map[string]redis.Cmder{
		"a command":             redis.NewCmd(ctx, "get", "asynq:{q}:lease"),
		"enqueueing":            redis.NewCmd(ctx, "evalsha", "1234", 2, "asynq:{q}:t:1", "asynq:{q}:pending", "asynq:{q}:lease"),
		"parking":               redis.NewCmd(ctx, "evalsha", "1234", 2, "railtoken:waiters:{k}", "asynq:{q}:t:1"),
		"looking for leases":    redis.NewCmd(ctx, "evalsha", "1234", 1, "asynq:{q}:lease", "asynq:{q}:active"),
		"a script of a user":    redis.NewCmd(ctx, "eval", "return 1", 3, "asynq:{q}:active", "asynq:{q}:lease", "mine"),
		"a script without keys": redis.NewCmd(ctx, "eval", "return 1", 0),
		"a malformed script":    redis.NewCmd(ctx, "eval", "return 1", 9, "asynq:{q}:active", "asynq:{q}:lease"),
		"a shorter one":         redis.NewCmd(ctx, "eval"),
	} {
		if runs, _ := send(ctx, cmd); runs {
			t.Errorf("%s runs although its context has ended", name)
		}
	}
}

func TestGuardKnowsAsynqsCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Virtual(t)
		c := patient(t, m)
		var mu sync.Mutex
		scripts := map[kind]map[string]bool{ack: {}, fetch: {}, other: {}}
		c.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() == "evalsha" {
				mu.Lock()
				scripts[kindOf(cmd)][fmt.Sprint(cmd.Args()[1])] = true
				mu.Unlock()
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
		enqueue(t, m, asynq.NewTask("done", nil))
		enqueue(t, m, asynq.NewTask("done and unique", nil), asynq.Unique(time.Minute))
		enqueue(t, m, asynq.NewTask("retained", nil), asynq.Retention(time.Minute))
		enqueue(t, m, asynq.NewTask("retained and unique", nil), asynq.Retention(time.Minute), asynq.Unique(time.Minute))
		enqueue(t, m, asynq.NewTask("fails", nil))
		enqueue(t, m, asynq.NewTask("archived", nil))
		enqueue(t, m, asynq.NewTask("abandoned", nil))
		time.Sleep(2 * time.Minute) // every part of asynq has been at work
		s.Shutdown()

		mu.Lock()
		defer mu.Unlock()
		for _, want := range []struct {
			kind  kind
			name  string
			count int
		}{{ack, "acknowledgements", 7}, {fetch, "fetches", 1}} {
			if got := len(scripts[want.kind]); got != want.count {
				t.Errorf("%d of asynq's scripts are taken for %s; want %d", got, want.name, want.count)
			}
		}
		if len(scripts[other]) == 0 {
			t.Error("every script is taken for one that the guard mends")
		}
	})
}

func TestPauseBeginsAnewWhenAFetchSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reply error
		fetchIt := (&asynqGuard{}).ProcessHook(func(context.Context, redis.Cmder) error { return reply })
		dequeue := redis.NewCmd(t.Context(), "evalsha", "1234", 3, "asynq:{q}:paused", "asynq:{q}:active", "asynq:{q}:lease")
		full := errors.New(oom)
		var got []time.Duration
		for _, reply = range []error{full, full, full, redis.ErrNoScript, full, redis.Nil, full, full, nil, full} {
			began := time.Now()
			if err := fetchIt(t.Context(), dequeue); !errors.Is(err, reply) {
				t.Errorf("%v becomes %v", reply, err)
			}
			got = append(got, time.Since(began)/time.Millisecond)
		}
		if want := []time.Duration{10, 20, 40, 0, 80, 0, 10, 20, 0, 10}; !slices.Equal(got, want) {
			t.Errorf("the pauses are %d ms; want %d", got, want)
		}
	})
}

func TestPauseEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &asynqGuard{}
		g.failed.Store(1000)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		began := time.Now()
		g.pause(ctx, errors.New(oom))
		if took := time.Since(began); took != 30*time.Millisecond {
			t.Errorf("the pause took %v; the context 30ms", took)
		}
	})
}

func TestPauseDoublesUpToASecond(t *testing.T) {
	t.Parallel()
	var got []time.Duration
	for _, n := range []int64{1, 2, 3, 7, 8, 9, 1000, 1 << 40} {
		got = append(got, pauseAfter(n))
	}
	ms := time.Millisecond
	want := []time.Duration{10 * ms, 20 * ms, 40 * ms, 640 * ms, time.Second, time.Second, time.Second, time.Second}
	if !slices.Equal(got, want) {
		t.Errorf("pauses are %v; want %v", got, want)
	}
}
