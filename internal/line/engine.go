package line

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/rediswire"
)

var (
	//go:embed lua/park.lua
	parkSource string

	// On one node a call is one script. On a Cluster it is several, each of which is a function.
	parkScript = redis.NewScript(composed(parkSource))
	wakeScript = redis.NewScript(composed("return wake(KEYS[1], KEYS[2], KEYS[3], nil, unpack(ARGV))"))
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
	steps   bool   // the keys may be on several nodes: a call is several scripts
	index   string // the sorted set of all parked tasks

	mu        sync.Mutex
	closed    bool
	closing   context.Context // ends with Close
	cancel    context.CancelFunc
	parking   context.Context // of the parks under way: ends later
	giveUp    context.CancelFunc
	lastWakes map[string]*lastWake // of each key that has more waiters
	looks     chan struct{}        // ends the looks for owed wakes; nil if there are none
	idleLooks idleLooks
	failed    failedHeads    // only the looks use it
	pending   sync.WaitGroup // work in the background
	unserved  unservedQueues
	runs      runs
	listed    sync.Map // queues that are in asynq's list

	held  holdings.Set    // by tasks of the servers of this process
	locks colocated.Locks // taken with the tasks of some types; may be nil
	types colocated.Types

	parkers parkers
}

// IsNil reports whether a client is nil, or an interface with a nil pointer.
func IsNil(client redis.UniversalClient) bool {
	v := reflect.ValueOf(client)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// New returns an Engine on the Redis where asynq keeps its tasks. Close the Engine before the client. With a client of
// a Redis Cluster a call takes several round trips instead of one; everything else works as on one node. New refuses a
// Cluster client that reads from replicas, a ring, whose nodes know nothing of each other, and a client that is nil.
func New(client redis.UniversalClient, opts Options) (*Engine, error) {
	if IsNil(client) {
		return nil, errors.New("delayqueue: the client is nil: give a client of the Redis where asynq keeps its tasks")
	}
	cluster, ok := client.(*redis.ClusterClient)
	if ok && cluster.Options().ReadOnly {
		return nil, errors.New("delayqueue: the client reads from the replicas of the cluster, which are behind: " +
			"use one without ReadOnly, RouteByLatency and RouteRandomly")
	}
	if _, ring := client.(*redis.Ring); ring {
		return nil, errors.New("delayqueue: tasks cannot be parked on a ring of Redis nodes: " +
			"use a standalone or Sentinel-managed Redis or a Redis Cluster for asynq")
	}
	// Any other client may have a Cluster behind it, where the scripts for one node would lose tasks.
	_, oneNode := client.(*redis.Client)
	e := &Engine{
		client: client, log: opts.Logger, woken: opts.Woken, repair: opts.Repaired,
		lastWakes: map[string]*lastWake{}, failed: failedHeads{}, steps: !oneNode, index: cmp.Or(opts.Index, ParkedIndex),
		inspect: asynq.NewInspectorFromRedisClient(client),
	}
	e.tasks = asynq.NewClientFromRedisClient(broker.NewEnqueuer(client, e.answer))
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.closing, e.cancel = context.WithCancel(context.Background())
	e.parking, e.giveUp = context.WithCancel(context.Background())
	return e, nil
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

// Close waits up to 1 s for wakes under way, and up to 8 s, as long as asynq's own shutdown, for tasks that are to be
// parked once Redis can be reached again. A task that was not woken runs when its timer ends. One that could not be
// parked is logged, and asynq recovers it: as failed, and archived when it has no retry left.
func (e *Engine) Close() error {
	e.CloseBy(time.Now().Add(CloseLimit))
	return nil
}

// CloseBy does what Close does, until a deadline.
func (e *Engine) CloseBy(deadline time.Time) {
	e.releaseAll()
	e.mu.Lock()
	if !e.closed && e.looks != nil {
		close(e.looks)
	}
	e.closed = true
	for _, f := range e.lastWakes {
		f.timer.Stop()
	}
	e.mu.Unlock()
	timer := time.AfterFunc(time.Second, e.cancel)
	defer timer.Stop()
	last := time.AfterFunc(time.Until(deadline), e.giveUp)
	defer last.Stop()
	done := make(chan struct{})
	go func() {
		e.pending.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-e.parking.Done(): // a client without ContextTimeoutEnabled does not notice it
		e.givenUp()
	}
	e.cancel()
	e.giveUp()
}

// CloseLimit is how long everything may take together that is closed when a server shuts down: parks, releases, locks.
const CloseLimit = 8 * time.Second

// ParkedIndex is the sorted set of all parked tasks: the score of an entry is when it was last parked (us).
const ParkedIndex = "railtoken:parked"

// waitersPrefix begins the names of all sets of waiters.
const waitersPrefix = "railtoken:waiters:{"

// WaitersKey returns the name of the sorted set of a key's waiters.
func WaitersKey(key string) string { return waitersPrefix + rediswire.Encode(key) + "}" }

// KeyOf returns the key of a set of waiters.
func KeyOf(waiters string) (string, bool) {
	if len(waiters) <= len(waitersPrefix) {
		return "", false
	}
	return rediswire.Decode(waiters[len(waitersPrefix) : len(waiters)-1])
}

// Client returns the Redis client of asynq's tasks.
func (e *Engine) Client() redis.UniversalClient { return e.client }

// Tasks returns asynq's Inspector of the tasks.
func (e *Engine) Tasks() *asynq.Inspector { return e.inspect }

// Held returns what the tasks of this process hold at the moment.
func (e *Engine) Held() *holdings.Set { return &e.held }

// Index returns the name of the sorted set of all parked tasks.
func (e *Engine) Index() string { return e.index }
