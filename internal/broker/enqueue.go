package broker

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// Enqueuing is one of asynq's scripts that enqueue a task, as it is about to be sent.
type Enqueuing struct {
	Script    string // asynq's name for it, "" when it is not known
	Text      string
	Queue, ID string
	Keys      []string
	Args      []any
}

// Function returns asynq's script as the Lua function enqueue. Its KEYS and ARGV are those of the script around it.
func (e Enqueuing) Function() string { return "local function enqueue()" + e.Text + "\nend\n" }

// Now reports whether the task is to run at once, and not later or in a group.
func (e Enqueuing) Now() bool { return e.Script == "enqueue" || e.Script == "enqueueUnique" }

// Enqueuer is the Redis client of an asynq.Client. It is safe for concurrent use.
type Enqueuer struct {
	redis.UniversalClient

	answer func(ctx context.Context, e Enqueuing) *redis.Cmd
}

// NewEnqueuer returns an Enqueuer over a client. It calls answer in place of each of asynq's scripts that enqueue a
// task. When answer returns nil, asynq's own script is sent. For a script of an unsupported version answer gets an
// empty Enqueuing.
func NewEnqueuer(client redis.UniversalClient, answer func(ctx context.Context, e Enqueuing) *redis.Cmd) *Enqueuer {
	return &Enqueuer{UniversalClient: client, answer: answer}
}

// EvalSha runs a script by its SHA-1. For a script that enqueues a task it answers that Redis does not know it, so that
// go-redis calls Eval with the text.
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

// Eval runs a script by its text. One that enqueues a task is retried while the slot of its queue moves.
func (c *Enqueuer) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	sum := sumOf(script)
	if kind, _ := KindOf(sum, keys); kind == Enqueue {
		e := Enqueuing{Script: scripts[sum], Text: script, Keys: keys, Args: args}
		for _, key := range keys {
			if queue, id, ok := asynqwire.TaskAt(key); ok && e.ID == "" {
				e.Queue, e.ID = queue, id
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
