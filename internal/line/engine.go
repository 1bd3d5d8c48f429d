package line

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/subscription"
)

// Options configures an [Engine]. The zero value has every default.
type Options struct {
	// Woken, when not nil, is called for each task that this Engine has moved to the head of its queue. It must be
	// quick and safe for concurrent use: it lets an idle worker fetch at once instead of after its interval.
	Woken func(Task)
	// Repaired, when not nil, is called for each task that this Engine has woken in the background: in place of a woken
	// task that does not come or now waits for another key, or once a slot of a Cluster has arrived. lost says that the
	// woken task was deleted or archived, or that its queue is paused or has no server. It must be quick.
	Repaired func(key string, t Task, lost bool)
	// Logger receives what fails in the background; nil disables it.
	Logger *slog.Logger
	// Index names the sorted set of all parked tasks; railtoken:parked when empty. Tests that share a Redis use one
	// each.
	Index string
	// Lanes are those of the tasks, on a Redis Cluster.
	Lanes lanes.Lanes
}

// Engine parks tasks on keys and wakes them. It is safe for concurrent use.
type Engine struct {
	client  redis.UniversalClient
	repair  func(key string, t Task, lost bool)    // may be nil
	lockOf  func(key string) (lock, notify string) // may be nil
	tasks   *asynq.Client
	inspect *asynq.Inspector
	log     *slog.Logger
	woken   func(Task)
	spread  bool // the keys may be on several nodes: see together
	names   Names

	mu        sync.Mutex
	closed    bool
	closing   context.Context // ends with Close
	cancel    context.CancelFunc
	parking   context.Context // of the parks under way: ends later
	giveUp    context.CancelFunc
	lastWakes map[string]*lastWake // of each key that has more waiters
	conns     []*broker.Conn       // of the servers of this process, which tell where a wake may be owed
	looks     chan struct{}        // ends the looks for owed wakes; nil if there are none
	idleLooks idleLooks
	messages  *subscription.Subscription // of operators, to the runs of this process
	failed    failedHeads                // only the looks use it
	pending   sync.WaitGroup             // work in the background
	unserved  unservedQueues
	runs      runs
	listed    sync.Map // queues that are in asynq's list
	agreement *lanes.Agreement

	held  holdings.Set    // by tasks of the servers of this process
	locks colocated.Locks // taken with the tasks of some types; may be nil
	types colocated.Types

	parkers parkers

	ends    Ends          // what becomes of tasks that end; may be nil
	waiters *ends.Waiters // for the ends of tasks
}

// unservedQueues is what is known of the queues whose tasks are not fetched, by asynq's own list of its servers: no server
// works on them, or they starve, because all servers that do have StrictPriority and tasks pending in a higher queue. A
// server that was killed stays in that list for ten seconds. The list is not read as long as every woken task is fetched.
type unservedQueues struct {
	mu      sync.Mutex
	asked   time.Time // when the list was last read
	asking  bool
	queues  []string // those that starve come last
	starved int      // how many of them starve

	servers []string // in the list when it was last read; only the reader uses it
	working []*asynq.ServerInfo
}

// parkers are the Parkers of types of tasks. It is safe for concurrent use.
type parkers struct {
	byType sync.Map
	names  Names
}

// IsNil reports whether a client is nil, or an interface with a nil pointer.
func IsNil(client redis.UniversalClient) bool {
	v := reflect.ValueOf(client)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// background calls do on a goroutine that Close waits for. The context of do ends with until, and after limit. It
// reports false, and does not call do, once the Engine is closed.
func (e *Engine) background(until context.Context, limit time.Duration, do func(ctx context.Context)) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.pending.Go(func() {
		ctx, cancel := context.WithTimeout(until, limit)
		defer cancel()
		do(ctx)
	})
	return true
}

// CloseLimit is how long everything may take together that is closed when a server shuts down: parks, releases, locks.
const CloseLimit = 8 * time.Second

// Client returns the Redis client of asynq's tasks.
func (e *Engine) Client() redis.UniversalClient { return e.client }

// Tasks returns asynq's Inspector of the tasks.
func (e *Engine) Tasks() *asynq.Inspector { return e.inspect }

// Held returns what the tasks of this process hold at the moment.
func (e *Engine) Held() *holdings.Set { return &e.held }

// Names returns the names of the lines.
func (e *Engine) Names() Names { return e.names }

// Agreement returns that with other processes on the number of lanes.
func (e *Engine) Agreement() *lanes.Agreement { return e.agreement }

// Together reports whether one script reaches a queue and all that belongs to some keys. Otherwise a call is several scripts.
func (e *Engine) Together(queue string, keys ...string) bool {
	if !e.spread {
		return true
	}
	lane, ok := e.names.In(queue)
	return ok && !slices.ContainsFunc(keys, func(key string) bool { return e.names.Of(key) != lane })
}
