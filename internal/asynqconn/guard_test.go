package asynqconn

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// oom is what a Redis answers at once when its memory is full.
const oom = "OOM command not allowed when used memory > 'maxmemory'."

// dequeue and done are the SHA-1 of asynq's scripts.
const (
	dequeue = "a8153319360adc71cdc370107f8ab9786f204765"
	done    = "1241eaa1c73409baaf1fea0c08d203a4911bda15"
)

// recorder is a client that tells with which context a script came.
type recorder struct {
	redis.UniversalClient
	runs  bool
	limit time.Duration
}

func (r *recorder) EvalSha(ctx context.Context, sum string, keys []string, _ ...any) *redis.Cmd {
	r.runs = ctx.Err() == nil
	if deadline, ok := ctx.Deadline(); ok {
		r.limit = time.Until(deadline)
	}
	return redis.NewCmd(ctx, "evalsha", sum, len(keys))
}

// send gives a script to a Conn. It returns whether the script may run, and for how long if there is a limit.
func send(ctx context.Context, sum string, keys ...string) (runs bool, limit time.Duration) {
	r := &recorder{}
	New(r, Options{}).EvalSha(ctx, sum, keys)
	return r.runs, r.limit
}

func TestAnAcknowledgementKeepsToTheEndOfAsynqsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
			if runs, limit := send(ctx, done, "asynq:{q}:active", "asynq:{q}:lease",
				"asynq:{q}:t:1"); runs != tc.runs || limit != tc.limit {
				t.Errorf("an acknowledgement within %s runs: %t for %v; want %t for %v", tc.name, runs, limit, tc.runs,
					tc.limit)
			}
		}
	})
}

func TestOtherScriptsKeepTheirContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, keys := range map[string][]string{
		"enqueueing":            {"asynq:{q}:t:1", "asynq:{q}:pending"},
		"parking":               {"railtoken:waiters:{k}", "asynq:{q}:t:1"},
		"looking for leases":    {"asynq:{q}:lease"},
		"a script of a user":    {"asynq:{q}:active", "asynq:{q}:lease", "mine"},
		"a script without keys": nil,
	} {
		if runs, _ := send(ctx, "1234", keys...); runs {
			t.Errorf("%s runs although its context has ended", name)
		}
	}
}

func TestPauseBeginsAnewWhenAFetchSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reply error
		conn := New(&answers{look: func() error { return reply }}, Options{Queues: 2})
		full := errors.New(oom)
		var got []time.Duration
		for _, reply = range []error{full, full, full, redis.ErrNoScript, full, redis.Nil, full, full, nil, full} {
			began := time.Now()
			if err := conn.EvalSha(t.Context(), dequeue, nil).Err(); !errors.Is(err, reply) {
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
		var f failures
		f.inARow.Store(1000)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		began := time.Now()
		f.pause(ctx, errors.New(oom))
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
