package asynqconn

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// CheckInterval is the TaskCheckInterval that an asynq server must have behind a [Conn]: what is left of asynq's own
// pause between two looks for tasks, as the Conn makes the real one.
const CheckInterval = time.Millisecond

// Options configures a [Conn].
type Options struct {
	// Interval is the longest pause of an idle server between two looks for tasks, and Queues how many queues it looks
	// at.
	Interval time.Duration
	Queues   int
	// Stopping, when it is closed, ends every pause: close it when the server begins to shut down. Never when nil.
	Stopping <-chan struct{}
	// Wakes ends a pause when a task is ready; each of the servers of a process has the same. Never when nil.
	Wakes Wakes
	// Tasks answers for the tasks of the server. Nobody does when nil: then every script is asynq's own.
	Tasks Tasks
	// Foreign is set once asynq's scripts turn out to be those of a version that is not known: asynq then fetches by
	// its own script, and Tasks hears of no new runs. The servers of a process share it; one of its own when nil.
	Foreign *atomic.Bool
	// Logger is told of that too. Silent when nil.
	Logger *slog.Logger
	// Ready, when not nil, is asked before each fetch. Its error ends the fetch: asynq logs it, and the server fetches
	// no task until it is nil.
	Ready func(context.Context) error
}

// Conn is the Redis client of one asynq server. It is safe for use by many goroutines at the same time. Closing it
// closes the client behind it.
type Conn struct {
	redis.UniversalClient

	failures failures
	lost     lostFetches
	pacer    *pacer
	tasks    Tasks
	log      *slog.Logger
	foreign  *atomic.Bool
	ready    func(context.Context) error
}

// New returns a Conn over a client.
func New(client redis.UniversalClient, opts Options) *Conn {
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	foreign := opts.Foreign
	if foreign == nil {
		foreign = new(atomic.Bool)
	}
	return &Conn{
		UniversalClient: client, pacer: newPacer(opts), tasks: opts.Tasks, foreign: foreign, ready: opts.Ready,
		log: log,
	}
}

// EvalSha runs a script that Redis knows.
func (c *Conn) EvalSha(ctx context.Context, sum string, keys []string, args ...any) *redis.Cmd {
	return c.run(ctx, c.tasks, sum, keys, args,
		func(ctx context.Context) *redis.Cmd { return c.UniversalClient.EvalSha(ctx, sum, keys, args...) })
}

// Eval runs a script that Redis does not know yet: go-redis sends it so after EvalSha, so whoever answers for tasks has
// been asked.
func (c *Conn) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return c.run(ctx, nil, sumOf(script), keys, args,
		func(ctx context.Context) *redis.Cmd { return c.UniversalClient.Eval(ctx, script, keys, args...) })
}

// run answers a script as its kind needs it. tasks is asked about an acknowledgement, unless it is nil.
func (c *Conn) run(ctx context.Context, tasks Tasks, sum string, keys []string, args []any,
	send func(context.Context) *redis.Cmd,
) *redis.Cmd {
	kind, known := KindOf(sum, keys)
	if kind != Other && !known {
		c.tellForeign(ctx, sum)
	}
	switch kind {
	case Ack:
		repeated := ctx.Err() != nil
		if repeated {
			fresh, cancel := uncancelled(ctx)
			defer cancel()
			ctx = fresh
		}
		a, ok := acknowledgement(scripts[sum], keys, args)
		a.Repeated = repeated
		return OnceSettled(ctx, settleLimit, func() *redis.Cmd {
			if ok && tasks != nil { // also of an asynq that is not known: a run that began here ends here
				if answered, err := tasks.Acknowledge(ctx, a); answered {
					return answer(ctx, sum, err)
				}
			}
			return send(ctx)
		})
	case Fetch:
		cmd := c.fetched(ctx, known, keys, args, send)
		c.failures.pause(ctx, cmd.Err())
		c.pacer.fetched(ctx, cmd.Err())
		return cmd
	case Recover:
		if c.failures.lately(time.Now()) {
			cmd := redis.NewCmd(ctx, "evalsha", sum)
			cmd.SetVal([]any{})
			return cmd
		}
		return send(ctx)
	default:
		return send(ctx)
	}
}

// fetched fetches a task.
func (c *Conn) fetched(ctx context.Context, known bool, keys []string, args []any,
	send func(context.Context) *redis.Cmd,
) *redis.Cmd {
	if c.ready != nil {
		if err := c.ready(ctx); err != nil {
			cmd := redis.NewCmd(ctx, "evalsha")
			cmd.SetErr(err)
			return cmd
		}
	}
	if known && c.tasks != nil && !c.foreign.Load() {
		return c.fetch(ctx, keys, args)
	}
	return send(ctx)
}

// tellForeign tells once of an asynq that is not known.
func (c *Conn) tellForeign(ctx context.Context, sum string) {
	if c.foreign.Swap(true) {
		return
	}
	c.log.WarnContext(ctx,
		"asynq's scripts are not those of the version that this build of railtoken supports; tasks are not parked at the ack, and wait for "+
			"their own timers: use that version of asynq", "script", sum)
}
