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
	lanes    *laneLook // nil without lanes
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
			Queues: opts.Queues, Strict: opts.Strict, Slots: opts.Slots, Lanes: opts.Lanes, Stopping: opts.Stopping, Background: opts.Background,
			Locks: opts.Locks, Types: opts.Types, KeysIn: opts.KeysIn, Tasks: opts.Tasks, Parking: opts.Parking,
			Marks: opts.Marks, Worker: opts.Worker,
		}),
	}
	c.lanes = newLaneLook(client, opts, c.intake)
	c.bell = newBell(client, opts, c.intake.Hear)
	c.pacer, c.look = newPacer(opts, c.intake, c.bell), newLook(client, opts, c.intake.AllAtOnce() && c.lanes == nil)
	return c
}

// Silence closes the connections of the Conn's own, which tell an idle server of tasks. It then looks at its intervals. With lanes
// it learns of no further tasks.
func (c *Conn) Silence() {
	c.bell.close()
	c.lanes.close()
}

// InLanes returns the queues of the server in those lanes in which there may be anything: tasks in any state but archived, or what
// is owed. What it says is 2 s old at most while Redis answers.
func (c *Conn) InLanes() (queues []string) {
	if c.lanes == nil {
		return nil
	}
	for i := range c.lanes.lanes.Count() {
		if s := &c.lanes.spots[i]; c.lanes.mayHave(s.queues[0]) {
			queues = append(queues, s.queues...)
		}
	}
	return queues
}

// MayOwe reports whether something may be owed in a lane: see [Options].Owed. It is true without lanes.
func (c *Conn) MayOwe(lane int) bool { return c.lanes == nil || c.lanes.mayOwe(lane) }

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
