package asynqconn

import (
	"context"
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// CheckInterval is the TaskCheckInterval that an asynq server must have behind a [Conn]: what is left of asynq's own pause between two looks
// for tasks, as the Conn makes the real one.
const CheckInterval = time.Millisecond

// Options configures a [Conn].
type Options struct {
	// Interval is the longest pause of an idle server between two looks for tasks, and Queues how many queues it looks at.
	Interval time.Duration
	Queues   int
	// Stopping, when it is closed, ends every pause: close it when the server begins to shut down. Never when nil.
	Stopping <-chan struct{}
	// Wakes ends a pause when a task is ready; each of the servers of a process has the same. Never when nil.
	Wakes Wakes
	// Logger is told of an asynq that this package does not know. Silent when nil.
	Logger *slog.Logger
}

// Conn is the Redis client of one asynq server. It is safe for use by many goroutines at the same time. Closing it closes the client behind it.
type Conn struct {
	redis.UniversalClient

	failures failures
	pacer    *pacer
	log      *slog.Logger
	foreign  sync.Once // tells of an asynq that is not known
}

// New returns a Conn over a client.
func New(client redis.UniversalClient, opts Options) *Conn {
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Conn{UniversalClient: client, pacer: newPacer(opts), log: log}
}

// EvalSha runs a script that Redis knows.
func (c *Conn) EvalSha(ctx context.Context, sum string, keys []string, args ...any) *redis.Cmd {
	return c.run(ctx, sum, keys, func(ctx context.Context) *redis.Cmd { return c.UniversalClient.EvalSha(ctx, sum, keys, args...) })
}

// Eval runs a script that Redis does not know yet.
func (c *Conn) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	sum := sha1.Sum([]byte(script)) //nolint:gosec // see above
	return c.run(ctx, hex.EncodeToString(sum[:]), keys, func(ctx context.Context) *redis.Cmd { return c.UniversalClient.Eval(ctx, script, keys, args...) })
}

// run sends a script as its kind needs it.
func (c *Conn) run(ctx context.Context, sum string, keys []string, send func(context.Context) *redis.Cmd) *redis.Cmd {
	kind, known := KindOf(sum, keys)
	if kind != Other && !known {
		c.foreign.Do(func() {
			c.log.WarnContext(ctx, "asynq's scripts are not those of the version that this build of railtoken supports: use that version of asynq", "script", sum)
		})
	}
	switch kind {
	case Ack:
		if ctx.Err() != nil {
			fresh, cancel := uncancelled(ctx)
			defer cancel()
			ctx = fresh
		}
		return send(ctx)
	case Fetch:
		cmd := send(ctx)
		c.failures.pause(ctx, cmd.Err())
		c.pacer.fetched(ctx, cmd.Err())
		return cmd
	default:
		return send(ctx)
	}
}
