package broker

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

func TestPauseBeginsAnewWhenAFetchSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reply error
		conn := New(&answers{look: func() error { return reply }}, Options{Queues: numbered(2)})
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
