package broker

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/colocated"
)

// CheckInterval is the TaskCheckInterval that an asynq server must have behind a [Conn]: asynq's own pause between two
// checks for tasks. The Conn makes the real pause.
const CheckInterval = time.Millisecond

// Options configures a [Conn].
type Options struct {
	// Interval is the longest pause of an idle server between two checks of its queues.
	Interval time.Duration
	// Queues are those of the server with their priorities, Strict is its StrictPriority, and Slots its Concurrency.
	Queues map[string]int
	Strict bool
	Slots  int
	// Background runs a call until Redis has answered it, for at most limit; it reports false when the process is
	// ending. When nil, each call has a goroutine of its own.
	Background func(limit time.Duration, do func(context.Context)) bool
	// Stopping, once it is closed, ends every pause: close it when the server begins to shut down. Nil never ends one.
	Stopping <-chan struct{}
	// Wakes ends a pause when a task is ready; the servers of a process share it. Nil never ends one.
	Wakes Wakes
	// Tasks learns of the tasks of the server, and answers their acknowledgements. When nil, every script is asynq's
	// own.
	Tasks Tasks
	// Locks are taken with the tasks of some Types, and released with their acknowledgements, if they are on the Redis of
	// the tasks. Freed is called with keys that were released because their task goes back, if others wait for one.
	Locks colocated.Locks
	Types *colocated.Types
	Freed func(keys []string)
	// Park takes a task that was refused a lock, if it is to be parked without a run; then it returns true, and calls
	// parked once that is done. When nil, asynq gets all tasks.
	Park func(f Fetched, parked func()) bool
	// KeysIn returns the keys of a task by its message, encoded as they are recorded; "" if they are not known before its run.
	KeysIn func(message string) string
	// Parking has tasks parked by the script that would fetch them. When nil, Park is asked about all that were refused.
	Parking *Parking
	// Beside is looked at by the looks of the server while it is idle, unless the client has several nodes.
	Beside Beside
	// Foreign is set once a script of an asynq is seen that is not recognised: see [Recognise]. The servers of a process
	// share it; when nil, the Conn has its own. From then on the server fetches no task, unless Plain is set. With Plain
	// asynq fetches by its own script, and Tasks learns of no new runs.
	Foreign *atomic.Bool
	Plain   bool
	// Logger receives an error or a warning then; nil disables it.
	Logger *slog.Logger
	// Ready, when not nil, is called before each fetch. When it returns an error, the fetch fails with it: asynq logs
	// it, and the server fetches no task.
	Ready func(context.Context) error
}

// Conn is the Redis client of one asynq server. It is safe for concurrent use. Close closes the client that it was made
// from.
type Conn struct {
	redis.UniversalClient

	failures failures
	recovery recovery
	pulse    pulse
	pacer    *pacer
	look     *look
	bell     *bell
	intake   *intake.Intake
	tasks    Tasks
	log      *slog.Logger
	foreign  *atomic.Bool
	plain    bool
	ready    func(context.Context) error
	resent   taskSet // tasks whose acknowledgements come again, with their texts
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
	c := &Conn{
		UniversalClient: client, tasks: opts.Tasks, foreign: foreign, plain: opts.Plain, ready: opts.Ready,
		log: log,
		intake: intake.New(client, intake.Options{
			Queues: opts.Queues, Strict: opts.Strict, Slots: opts.Slots, Stopping: opts.Stopping, Background: opts.Background,
			Locks: opts.Locks, Types: opts.Types, Freed: opts.Freed, KeysIn: opts.KeysIn, Park: opts.Park, Parking: opts.Parking,
		}),
	}
	c.bell = newBell(client, opts)
	c.pacer, c.look = newPacer(opts, c.intake, c.bell), newLook(client, opts, c.intake.AllAtOnce())
	return c
}

// EvalSha runs a script by its SHA-1.
func (c *Conn) EvalSha(ctx context.Context, sum string, keys []string, args ...any) *redis.Cmd {
	return c.run(ctx, "", sum, keys, args,
		func(ctx context.Context) *redis.Cmd { return c.UniversalClient.EvalSha(ctx, sum, keys, args...) })
}

// Eval runs a script by its text. go-redis calls it when Redis does not know the script, after EvalSha.
func (c *Conn) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return c.run(ctx, script, sumOf(script), keys, args,
		func(ctx context.Context) *redis.Cmd { return c.UniversalClient.Eval(ctx, script, keys, args...) })
}

// run treats a script as its kind requires. text is that of the script if go-redis sends it, and empty otherwise.
func (c *Conn) run(ctx context.Context, text, sum string, keys []string, args []any,
	send func(context.Context) *redis.Cmd,
) *redis.Cmd {
	kind, known := KindOf(sum, keys)
	if kind != Other && !known {
		c.warnForeign(ctx, sum)
	}
	switch kind {
	case Ack:
		return c.acknowledge(ctx, text, sum, keys, args, send)
	case Fetch:
		cmd, more := c.fetched(ctx, known, keys, send)
		c.failures.pause(ctx, cmd.Err())
		if !more && c.pacer.fetched(ctx, cmd.Err()) { // there is one now
			c.look.fetched(false)
			cmd, _ = c.fetched(ctx, known, keys, send)
			c.pacer.followed(cmd.Err())
			c.failures.pause(ctx, cmd.Err())
		}
		return cmd
	case Recover:
		return c.recover(ctx, sum, keys, send)
	case Stop:
		c.pulse.over()
		c.bell.close()
		c.drain()
		return send(ctx)
	case Beat:
		defer c.intake.Beat()()
		cmd := send(ctx)
		c.pulse.called(cmd.Err())
		return cmd
	default:
		if scripts[sum] == forwardScript && c.look.forwardsNothing(ctx) {
			cmd := redis.NewCmd(ctx, "evalsha", sum)
			cmd.SetVal(int64(0))
			return cmd
		}
		cmd := send(ctx)
		if scripts[sum] == forwardScript && cmd.Err() == nil {
			c.look.forwarded()
		}
		c.pulse.called(cmd.Err())
		c.missed(cmd.Err())
		return cmd
	}
}

// Silence closes the connections of the Conn's own, which tell an idle server of tasks. It then looks at its intervals.
func (c *Conn) Silence() { c.bell.close() }

// drainTimeout is how long a server that shuts down waits for replies before it puts back the tasks in memory.
const drainTimeout = time.Second

// drain puts back the tasks in memory, before asynq records that the server is gone.
func (c *Conn) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	c.intake.Drain(ctx)
}

// fetched fetches a task, by asynq's script when our own cannot be used. more reports that others may follow at once.
func (c *Conn) fetched(ctx context.Context, known bool, keys []string,
	send func(context.Context) *redis.Cmd,
) (cmd *redis.Cmd, more bool) {
	c.pulse.fetching()
	defer func() {
		c.pulse.fetched(cmd.Err())
		c.missed(cmd.Err())
	}()
	if c.ready != nil {
		if err := c.ready(ctx); err != nil {
			cmd = redis.NewCmd(ctx, "evalsha")
			cmd.SetErr(err)
			return cmd, false
		}
	}
	if foreign := c.foreign.Load(); foreign && !c.plain {
		cmd = redis.NewCmd(ctx, "evalsha")
		cmd.SetErr(fmt.Errorf("%w: no task is fetched", ErrAsynq))
		return cmd, false
	} else if known && c.tasks != nil && !foreign {
		return c.fetch(ctx, keys)
	}
	return send(ctx), false
}

// warnForeign logs once that asynq is not recognised.
func (c *Conn) warnForeign(ctx context.Context, sum string) {
	if c.foreign.Swap(true) {
		return
	}
	if !c.plain {
		c.log.ErrorContext(ctx, "asynq has sent a script that railtoken does not recognise; no more tasks are fetched: use asynq "+
			Versions+", or set AllowUnknownAsynq", "script", sum)
		return
	}
	c.log.WarnContext(ctx,
		"asynq's scripts are not those of the version that this build of railtoken supports; tasks in conflict are not "+
			"parked, and wait for their own timers: use that version of asynq", "script", sum)
}
