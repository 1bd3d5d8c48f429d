package asynqconn

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Enqueuing is one of asynq's scripts that enqueue a task, as it is about to be sent.
type Enqueuing struct {
	Script    string // asynq's name for it, "" when it is not known
	Text      string
	Queue, ID string
	Keys      []string
	Args      []any
}

// Now reports whether the task is to run at once, and not at a later time or in a group.
func (e Enqueuing) Now() bool { return e.Script == "enqueue" || e.Script == "enqueueUnique" }

// Enqueuer is the Redis client of an asynq.Client. It is safe for use by many goroutines at the same time.
type Enqueuer struct {
	redis.UniversalClient

	answer func(ctx context.Context, e Enqueuing) *redis.Cmd
}

// NewEnqueuer returns an Enqueuer over a client. answer runs a script in place of each one of asynq's that enqueues a
// task. When it returns nil, asynq's own is sent, as is every script that is not known unless answer has a reply to it.
func NewEnqueuer(client redis.UniversalClient, answer func(ctx context.Context, e Enqueuing) *redis.Cmd) *Enqueuer {
	return &Enqueuer{UniversalClient: client, answer: answer}
}

// EvalSha runs a script that Redis knows. Of one that enqueues a task it says that Redis does not, so that go-redis
// gives Eval the text.
func (c *Enqueuer) EvalSha(ctx context.Context, sum string, keys []string, args ...any) *redis.Cmd {
	if kind, known := KindOf(sum, keys); kind == Enqueue {
		return answer(ctx, sum, noScriptError{})
	} else if !known {
		if cmd := c.answer(ctx, Enqueuing{}); cmd != nil {
			return cmd
		}
	}
	return c.UniversalClient.EvalSha(ctx, sum, keys, args...)
}

// Eval runs a script by its text. One that enqueues a task waits while the slot of its queue moves.
func (c *Enqueuer) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	sum := sumOf(script)
	if kind, _ := KindOf(sum, keys); kind == Enqueue {
		e := Enqueuing{Script: scripts[sum], Text: script, Keys: keys, Args: args}
		for _, key := range keys {
			if queue, id, ok := strings.Cut(key, "}:t:"); ok && e.ID == "" {
				e.Queue, e.ID = strings.TrimPrefix(queue, "asynq:{"), id
			}
		}
		return OnceSettled(ctx, settleLimit, func() *redis.Cmd {
			if cmd := c.answer(ctx, e); cmd != nil {
				return cmd
			}
			return c.UniversalClient.Eval(ctx, script, keys, args...)
		})
	}
	return c.UniversalClient.Eval(ctx, script, keys, args...)
}

// noScriptError has go-redis send a script's text.
type noScriptError struct{}

func (noScriptError) Error() string { return "NOSCRIPT" }
func (noScriptError) RedisError()   {}
