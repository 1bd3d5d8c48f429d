package asynqconn

import (
	"context"
	"crypto/rand"
	_ "embed"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/fire.lua
var fireSource string

// Firings is the Redis client of a scheduler that several processes have, of which one leads. Each of its firings is enqueued once: not after a later leader has
// fired in the queue, and not in the second in which the leader before did. A firing that was made already is no error.
//
// What a scheduler of another version of asynq enqueues passes unchanged.
type Firings struct {
	redis.UniversalClient
	// Name is that of the schedule. Token is larger than that of every leader before, and Trusted reports whether this one leads still, as far as it knows.
	Name    string
	Token   int64
	Trusted func() bool
}

// EvalSha runs a script that Redis knows. For those that enqueue it asks for their text.
func (f *Firings) EvalSha(ctx context.Context, sum string, keys []string, args ...any) *redis.Cmd {
	if kind, _ := KindOf(sum, keys); kind == Enqueue {
		return answer(ctx, sum, noScript{})
	}
	return f.UniversalClient.EvalSha(ctx, sum, keys, args...)
}

// noScript has go-redis send a script's text.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT" }
func (noScript) RedisError()   {}

// Eval runs a script.
func (f *Firings) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if kind, _ := KindOf(sumOf(script), keys); kind != Enqueue {
		return f.UniversalClient.Eval(ctx, script, keys, args...)
	}
	slot, _, _ := strings.Cut(strings.TrimPrefix(keys[0], "asynq:"), ":") // the queue, in braces
	trusted := "0"
	if f.Trusted() {
		trusted = "1"
	}
	last := "railtoken:fired:" + slot + ":" + f.Name
	keys = append(keys[:len(keys):len(keys)], last, last+":"+rand.Text())
	args = append(args[:len(args):len(args)], f.Token, time.Now().Unix(), trusted)
	script = strings.Replace(fireSource, "--SCRIPT--", script, 1)
	return onceSettled(ctx, func() *redis.Cmd { return f.UniversalClient.Eval(ctx, script, keys, args...) })
}
