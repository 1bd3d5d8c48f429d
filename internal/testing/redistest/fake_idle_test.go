package redistest_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
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
		"of no queue":      {[]string{"asynq:retry}:retry", "asynq:pending}:pending"}, func(*testing.T, *redis.Client) {}, nil},
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

// asynq's scripts as they are: the same answers and the same keys, whether they are asked for by their hash or sent.
func TestVirtualDoesForAnIdleServerWhatItsScriptsDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for name, tt := range map[string]struct {
			source string
			keys   []string
			args   []any
		}{
			"heartbeat": {`
redis.call("SETEX", KEYS[1], ARGV[1], ARGV[2])
redis.call("DEL", KEYS[2])
for i = 3, table.getn(ARGV)-1, 2 do
	redis.call("HSET", KEYS[2], ARGV[i], ARGV[i+1])
end
redis.call("EXPIRE", KEYS[2], ARGV[1])
return redis.status_reply("OK")`, []string{"asynq:servers:{s}", "asynq:workers:{s}"}, []any{10, "info"}},
			"janitor": {`
local ids = redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", ARGV[1], "LIMIT", 0, tonumber(ARGV[3]))
return table.getn(ids)`, []string{"asynq:{q}:completed"}, []any{start.Unix(), "asynq:{q}:t:", 100}},
			"recoverer": {`return redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", ARGV[1])`, []string{"asynq:{q}:lease"}, []any{start.Unix(), "asynq:{q}:t:"}},
		} {
			var answers [2]any
			var dumps [2]string
			for i, run := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{
				redis.NewScript(tt.source).Eval, redis.NewScript(tt.source).EvalSha,
			} {
				m, c := redistest.Virtual(t)
				if err := c.ScriptLoad(t.Context(), tt.source).Err(); err != nil {
					t.Fatal(err)
				}
				if _, err := m.ZAdd("asynq:{q}:lease", float64(start.Unix()+1), "id"); err != nil {
					t.Fatal(err)
				}
				m.HSet("asynq:workers:{s}", "a task", "that has ended")
				answer, err := run(t.Context(), c, tt.keys, tt.args...).Result()
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				answers[i], dumps[i] = answer, fmt.Sprint(m.Dump(), m.TTL("asynq:servers:{s}"))
			}
			if !reflect.DeepEqual(answers[0], answers[1]) || dumps[0] != dumps[1] {
				t.Errorf("%s: %#v with\n%s\nwant %#v with\n%s", name, answers[1], dumps[1], answers[0], dumps[0])
			}
		}
	})
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
