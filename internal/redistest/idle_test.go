package redistest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/redistest"
)

// A script that only tells that it ran takes the place of asynq's, which would give the same answers as the shortcut.
func TestVirtualRunsNoScriptForAnIdleLook(t *testing.T) {
	t.Parallel()
	const fetched, forwarded = "a fetch", "a forward"
	fetch := []string{"asynq:{q}:pending", "asynq:{q}:paused", "asynq:{q}:active", "asynq:{q}:lease"}
	forward := []string{"asynq:{q}:retry", "asynq:{q}:pending"}
	for name, tt := range map[string]struct {
		keys   []string
		before func(t *testing.T, c *redis.Client)
		idle   any // what the shortcut answers; the script runs when it is empty
	}{
		"nothing pending":  {fetch, func(*testing.T, *redis.Client) {}, fetched},
		"a pending task":   {fetch, push("asynq:{q}:pending"), nil},
		"of another queue": {fetch, push("asynq:{p}:pending"), fetched},
		"other keys":       {[]string{"asynq:{q}:pending", "asynq:{q}:paused", "asynq:{q}:active", "asynq:{q}:t:id"}, func(*testing.T, *redis.Client) {}, nil},
		"no delayed tasks": {forward, func(*testing.T, *redis.Client) {}, forwarded},
		"none is due":      {forward, delayed(time.Second), forwarded},
		"one is due":       {forward, delayed(0), nil},
		"not a set":        {forward, push("asynq:{q}:retry"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, c := redistest.Virtual(t)
				tt.before(t, c)
				script := redis.NewScript(`return "it ran"`)
				if err := script.Load(t.Context(), c).Err(); err != nil {
					t.Fatal(err)
				}
				got, err := script.EvalSha(t.Context(), c, tt.keys, time.Now().Unix()).Result()
				switch tt.idle {
				case fetched:
					if !errors.Is(err, redis.Nil) {
						t.Errorf("%v, %v; want nil", got, err)
					}
				case forwarded:
					if got != int64(0) || err != nil {
						t.Errorf("%v, %v; want 0", got, err)
					}
				default:
					if got != "it ran" || err != nil {
						t.Errorf("%v, %v; the script has not run", got, err)
					}
				}
			})
		})
	}
}

// push adds a member to a list.
func push(key string) func(*testing.T, *redis.Client) {
	return func(t *testing.T, c *redis.Client) {
		if err := c.LPush(t.Context(), key, "id").Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// delayed adds a task that is to be retried in a time.
func delayed(in time.Duration) func(*testing.T, *redis.Client) {
	return func(t *testing.T, c *redis.Client) {
		if err := c.ZAdd(t.Context(), "asynq:{q}:retry", redis.Z{Member: "id", Score: float64(time.Now().Add(in).Unix())}).Err(); err != nil {
			t.Fatal(err)
		}
	}
}
