package broker

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker/intake"
)

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
	fetching sync.Mutex     // guards flight; asynq asks for one task at a time
	flight   <-chan landing // the end of the fetch that is under way, nil for none
	tasks    Tasks
	log      *slog.Logger
	foreign  *atomic.Bool
	plain    bool
	ready    func(context.Context) error
	resent   taskSet // tasks whose acknowledgements come again, with their texts
	unended  unended // runs whose acknowledgements asynq repeats
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
			Locks: opts.Locks, Types: opts.Types, KeysIn: opts.KeysIn, Tasks: opts.Tasks, Parking: opts.Parking,
			Marks: opts.Marks, Worker: opts.Worker,
		}),
	}
	c.bell = newBell(client, opts)
	c.pacer, c.look = newPacer(opts, c.intake, c.bell), newLook(client, opts, c.intake.AllAtOnce())
	return c
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

// Pulse returns what is known now.
func (c *Conn) Pulse() Pulse {
	p := c.pulse.read()
	p.Busy = c.tasks == nil || c.foreign.Load() || c.intake.Full()
	p.Interval = c.pacer.interval
	return p
}
