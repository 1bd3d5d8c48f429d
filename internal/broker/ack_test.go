package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
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
