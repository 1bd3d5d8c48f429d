package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"runtime"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqconn"
	"github.com/railtoken/railtoken/internal/gated"
	"github.com/railtoken/railtoken/internal/observe"
	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// Defaults of the intervals that asynq.Config leaves at zero. asynq's own are 1 s and 5 s.
const (
	DefaultTaskCheckInterval        = 50 * time.Millisecond
	DefaultDelayedTaskCheckInterval = time.Second
)

// Options configures [New]. The zero value has every default: the locks are on the Redis of the tasks.
type Options struct {
	// Locker takes the locks. When nil, it is a locking.Single on the client, behind a locking.Gate. The caller closes
	// one of its own.
	Locker locking.Locker
	// RedisKeys is middleware.Options.RedisKeys, for a Locker of the caller's on the Redis of the tasks.
	RedisKeys func(key string) (lock, notify string)

	// Strategy is for handlers that set none; middleware.Requeue when nil.
	Strategy middleware.Strategy
	// TTL and MaxHold are those of the locks, for handlers that set none: 30 s and 30 min when zero. TTL must be below
	// 55 s.
	TTL, MaxHold time.Duration
	// MaxKeySize is the longest key in bytes, 1024 when zero; MaxKeys is the most keys of a task, 100 when zero.
	MaxKeySize, MaxKeys int
	// SlotBudget is how many tasks may wait in their slots, for all keys together; half of the server's Concurrency
	// when zero, none when negative.
	SlotBudget int

	// AllowEviction accepts a Redis that may evict keys when its memory is full: tasks and locks can vanish from it
	// without a trace. See [Attached.Check].
	AllowEviction bool

	// Observer is told of every event of the locks; nil disables it.
	Observer middleware.Observer
	// Logger receives failures and what an operator should know, with hashed keys. When nil, the log goes to
	// asynq.Config's Logger, from its LogLevel on, or to slog.Default if there is none. slog.New(slog.DiscardHandler)
	// disables it.
	Logger *slog.Logger
}

// LockOptions says how the tasks of one handler are locked. Key must be set; every other zero value is that of
// [Options].
type LockOptions struct {
	Key          middleware.KeyFunc
	Strategy     middleware.Strategy
	TTL, MaxHold time.Duration
}

// Attached is what asynq's servers need for locks. It is for one asynq.Config; several servers of a process may share
// it, each with a [Attached.Client] of its own. It is safe for use by many goroutines at the same time.
type Attached struct {
	client   redis.UniversalClient
	opts     Options
	oneNode  bool // else tasks can wait in their own queue only
	interval time.Duration

	mu    sync.Mutex
	cfg   asynq.Config
	fixed bool // a server has its queues

	checking sync.Mutex
	fit      bool // Redis is, and its user

	locker   locking.Locker
	closers  []io.Closer
	queue    *delayqueue.Queue
	budget   *middleware.SlotBudget
	wakes    asynqconn.Wakes
	stopping chan struct{}
	stop     sync.Once
	told     sync.Once // what was forgotten
	running  sync.WaitGroup
}

// New attaches locks to asynq servers that work on the Redis of client with a configuration of cfg. It connects to
// nothing, and returns every fault at once. The client stays the caller's: close it after the servers are shut down and
// Close has returned.
func New(client redis.UniversalClient, cfg asynq.Config, opts Options) (*Attached, error) {
	if client == nil {
		return nil, errors.New("attach: the client is nil: give the go-redis client of the asynq server")
	}
	if opts.Logger == nil {
		opts.Logger = loggerOf(cfg)
	}
	_, oneNode := client.(*redis.Client)
	cfg.Queues = maps.Clone(cfg.Queues)
	a := &Attached{
		client: client, opts: opts, cfg: cfg, oneNode: oneNode, interval: cmp.Or(cfg.TaskCheckInterval,
			DefaultTaskCheckInterval), locker: opts.Locker,
		wakes: asynqconn.NewWakes(fewServers), stopping: make(chan struct{}),
	}
	slots := cfg.Concurrency
	if slots < 1 {
		slots = runtime.NumCPU() // as asynq has it
	}
	a.budget = &middleware.SlotBudget{Waiting: cmp.Or(opts.SlotBudget, max(slots/2, 1)), Slots: slots}
	queue, err := delayqueue.New(client, delayqueue.Options{
		Logger: opts.Logger, Woken: func(delayqueue.Task) { a.wakes.Wake() }, Repaired: a.repaired,
	})
	if err != nil {
		return nil, err
	}
	a.queue = queue
	if a.locker == nil {
		locks, err := gated.OnClient(client, opts.MaxHold)
		if err != nil {
			return nil, errors.Join(err, queue.Close())
		}
		a.locker, a.closers, a.opts.RedisKeys = locks, []io.Closer{locks}, locks.RedisKeys
	}
	if _, err := a.LockWith(LockOptions{Key: func(context.Context, *asynq.Task) ([]string, error) { return nil, nil }}); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// FenceTTL returns how long a Locker of the caller's must keep its fence counters for leases of at most maxHold: its
// FenceTTL.
func FenceTTL(maxHold time.Duration) time.Duration { return gated.FenceTTL(maxHold) }

// repaired reports a task that the delay queue has woken in the background, in place of one that did not come.
func (a *Attached) repaired(key string, next delayqueue.Task) {
	e := middleware.Event{Kind: middleware.Woke, Key: key, Cause: middleware.ByRepair, Next: next}
	tell(context.Background(), a.opts.Observer, a.opts.Logger, e)
}

// tell gives an event to an observer, if there is one.
func tell(ctx context.Context, observer middleware.Observer, log *slog.Logger, e middleware.Event) {
	if observer == nil {
		return
	}
	e.At = time.Now()
	observe.Call(ctx, log, string(e.Kind), e.Task.String(), func() { observer(ctx, e) })
}

// fewServers is how many servers of a process a wake reaches at once.
const fewServers = 8

// Client returns the Redis client for one asynq server: give it to asynq.NewServerFromRedisClient together with
// [Attached.Config]. Each server needs one of its own.
func (a *Attached) Client() redis.UniversalClient {
	return (*parking.Engine)(a.queue).Conn(asynqconn.Options{
		Interval: a.interval, Queues: max(len(a.queues()),
			1), Stopping: a.stopping, Wakes: a.wakes, Logger: a.opts.Logger,
		Ready: a.Check,
	})
}

// queues returns the queues of the servers, which stay as they are from then on.
func (a *Attached) queues() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fixed = true
	return maps.Clone(a.cfg.Queues)
}

// serve adds a queue in which a strategy has tasks wait.
func (a *Attached) serve(queue string) error {
	if queue == "" {
		return nil
	}
	if !a.oneNode {
		return fmt.Errorf("attach: the strategy has tasks wait in the queue %q: on a Redis Cluster, or with a client that is no *redis.Client, tasks can wait in their own queue only: set no Requeue.Queue", queue)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch _, named := a.cfg.Queues[queue]; {
	case named:
	case a.fixed:
		return fmt.Errorf("attach: the strategy has tasks wait in the queue %q, which the server does not work on: name it in asynq.Config.Queues", queue)
	case len(a.cfg.Queues) == 0:
		a.cfg.Queues = map[string]int{"default": 1, queue: 1}
	default:
		a.cfg.Queues[queue] = 1
	}
	return nil
}

// configured marks the contexts of servers that have our Config.
type configured struct{}

// Config returns the configuration for the asynq servers: that of New, with functions that know which errors are those
// of a task that waits. The caller's own functions are asked about all others.
func (a *Attached) Config() asynq.Config {
	queues := a.queues() // from then on a.cfg stays as it is
	cfg := a.cfg
	cfg.Queues = queues
	base := cfg.BaseContext
	if base == nil {
		base = context.Background
	}
	cfg.BaseContext = func() context.Context { return context.WithValue(base(), configured{}, a) }
	cfg.TaskCheckInterval = asynqconn.CheckInterval
	cfg.DelayedTaskCheckInterval = cmp.Or(cfg.DelayedTaskCheckInterval, DefaultDelayedTaskCheckInterval)
	return middleware.ServerConfig(cfg)
}

// Lock returns the middleware that runs a handler only while it holds the locks of its task's keys: wrap each handler
// with it, rather than the whole mux. It panics when key is nil.
func (a *Attached) Lock(key middleware.KeyFunc) asynq.MiddlewareFunc {
	lock, err := a.LockWith(LockOptions{Key: key})
	if err != nil {
		panic(err) // of the key alone: New has looked at the rest
	}
	return lock
}

// LockWith returns the middleware for a handler with options of its own. It returns every fault at once.
func (a *Attached) LockWith(o LockOptions) (asynq.MiddlewareFunc, error) {
	if o.Strategy == nil {
		o.Strategy = a.opts.Strategy
	}
	if requeue, ok := middleware.RequeueOf(o.Strategy); ok {
		if err := a.serve(requeue.Queue); err != nil {
			return nil, err
		}
	}
	maxHold := cmp.Or(o.MaxHold, a.opts.MaxHold)
	lock, err := middleware.Lock(middleware.Options{
		Locker: a.locker, Key: o.Key, Strategy: o.Strategy, Queue: a.queue, RedisKeys: a.opts.RedisKeys,
		TTL: cmp.Or(o.TTL, a.opts.TTL), MaxHold: maxHold, MaxKeySize: a.opts.MaxKeySize, MaxKeys: a.opts.MaxKeys,
		SlotBudget: a.budget, Stopping: a.stopping, Observer: a.opts.Observer, Logger: a.opts.Logger,
	})
	if fence := FenceTTL(a.opts.MaxHold); maxHold >= fence {
		err = errors.Join(err,
			fmt.Errorf("attach: MaxHold is %v, and fence counters are kept for %v: raise MaxHold of the Options or the worker's Config too",
				maxHold, fence))
	}
	if err != nil {
		return nil, err
	}
	return func(next asynq.Handler) asynq.Handler {
		locked := lock(next)
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			if ctx.Value(configured{}) != a {
				return a.forgotten(ctx, errNoConfig)
			}
			a.running.Add(1)
			defer a.running.Done()
			err := locked.ProcessTask(ctx, task)
			if errors.Is(err, delayqueue.ErrNotOurs) {
				err = a.forgotten(ctx, fmt.Errorf("%w: %w", errNoClient, err))
			}
			return err
		})
	}, nil
}

// forgotten logs once what the caller has left out, because asynq shows the errors of tasks to none but its
// ErrorHandler.
func (a *Attached) forgotten(ctx context.Context, err error) error {
	a.told.Do(func() {
		a.opts.Logger.ErrorContext(ctx, "no task runs: a line is missing where the server is made", "error", err)
	})
	return err
}

// errNoClient is the error of each task of a server that has not our client.
var errNoClient = errors.New("attach: this asynq server does not speak through the client that parks its tasks: " +
	"start it with asynq.NewServerFromRedisClient(attached.Client(), attached.Config())")

// errNoConfig is the error of each task of a server that has not our Config.
var errNoConfig = errors.New("attach: this asynq server has not the Config that tells a task that waits from one that fails: " +
	"start it with asynq.NewServerFromRedisClient(attached.Client(), attached.Config())")

// Unlocked wraps a handler that needs no exclusion, so that its tasks count among those that have a slot: then none of
// them waits for a slot in which another one is on standby.
func (a *Attached) Unlocked(next asynq.Handler) asynq.Handler { return a.budget.Occupy(next) }

// Waits reports whether err is that of a task that waits for its keys, or for lock servers that cannot be reached: it
// has not failed.
func Waits(err error) bool { return err != nil && !isFailure(err) }

var isFailure = middleware.ServerConfig(asynq.Config{}).IsFailure

// Queue returns the waiting tasks, to list and reorder them.
func (a *Attached) Queue() *delayqueue.Queue { return a.queue }

// Locker returns the Locker, for work outside of tasks on the same keys.
func (a *Attached) Locker() locking.Locker { return a.locker }

// Stop ends the waiting in slots. Call it before the servers are shut down, so that the shutdown does not wait for
// tasks that wait: those are parked. Without it they wait until their strategy's time is over.
func (a *Attached) Stop() { a.stop.Do(func() { close(a.stopping) }) }

// abandoned is how long Close waits for handlers that asynq has given up.
const abandoned = 5 * time.Second

// Close releases what New has made: call it once asynq's servers are shut down, and before the client is closed. It
// waits up to 5 s for handlers that asynq has abandoned, so that they give their keys back.
func (a *Attached) Close() error {
	a.Stop()
	done := make(chan struct{})
	go func() {
		a.running.Wait()
		close(done)
	}()
	timer := time.NewTimer(abandoned)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		a.opts.Logger.Error("handlers or schedulers ignore their cancelled context; their keys become free when their TTL ends")
	}
	errs := []error{a.queue.Close()}
	for _, c := range a.closers {
		errs = append(errs, c.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("attach: close: %w", err)
	}
	return nil
}
