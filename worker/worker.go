package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/access"
	"github.com/railtoken/railtoken/internal/asynqconn"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// Worker runs handlers for the tasks of some queues. It is used once: New, Handle for each type, then Run.
type Worker struct {
	cfg      Config
	tasks    redis.UniversalClient
	lockConn redis.UniversalClient // nil when the locks are on several servers
	locker   gated
	lockTest []redis.UniversalClient // of several servers for locks, until they were looked at
	queue    *delayqueue.Queue
	sleepers *middleware.Sleepers
	woken    asynqconn.Wakes
	stopping chan struct{}

	mu       sync.Mutex
	state    state
	handlers map[string]asynq.Handler
	servers  []*asynq.Server
	running  sync.WaitGroup // handlers, also those that asynq does not wait for
	waitIn   []string       // queues of handlers' strategies that tasks wait in
}

type state int

const (
	fresh state = iota
	started
	closed
)

// New returns a worker that is not started yet. It connects to nothing. It returns every fault of the configuration at once.
func New(cfg Config) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &Worker{cfg: cfg.withDefaults(), stopping: make(chan struct{}), handlers: map[string]asynq.Handler{}}
	w.sleepers = middleware.NewSleepers(middleware.SleepersOptions{Waiting: w.cfg.Sleepers, Slots: w.cfg.Concurrency})
	w.tasks = cfg.Redis.client()
	w.woken = asynqconn.NewWakes(w.cfg.Fetchers)
	if err := w.openLocks(); err != nil {
		return nil, errors.Join(err, w.closeClients())
	}
	// From here on the clients know the passwords. fmt would show them in a dump of the worker, as it calls no method of
	// what a field without a capital leads to.
	w.cfg.Redis, w.cfg.LockRedis = w.cfg.Redis.withoutSecrets(), w.cfg.LockRedis.withoutSecrets()
	if err := w.openQueue(); err != nil {
		return nil, errors.Join(err, w.locker.Close(), w.closeClients())
	}
	return w, nil
}

// openQueue makes the delay queue.
func (w *Worker) openQueue() (err error) {
	w.queue, err = delayqueue.New(w.tasks, delayqueue.Options{Logger: w.cfg.Logger, Woken: func(delayqueue.Task) { w.woken.Wake() }})
	return err
}

// openLocks makes the Locker. It has connections of its own: what asynq does to its Redis must not hold up a renewal. A server that cannot
// be reached is found out soon, as the one who asks has a plan for it.
func (w *Worker) openLocks() error {
	at, fence := w.lockAt(), fenceTTL(w.cfg.MaxHold)
	if at.isRedlock() {
		for _, addr := range at.Nodes {
			node := at
			node.Addr, node.Nodes = addr, nil
			w.lockTest = append(w.lockTest, node.client(func(o *redis.UniversalOptions) {
				o.DialTimeout, o.DialerRetries, o.MaxRetries = lockDialTimeout, 1, -1
			}))
		}
		locker, err := locking.NewRedlock(at.nodes(), locking.RedlockOptions{FenceTTL: fence, Guard: w.cfg.LockGuard})
		if err != nil {
			return err
		}
		w.locker = gate(locker)
		return nil
	}
	w.lockConn = at.client(func(o *redis.UniversalOptions) {
		o.DialTimeout, o.DialerRetries, o.MaxRetries = lockDialTimeout, 1, 1
	})
	locker, err := locking.NewSingle(w.lockConn, locking.SingleOptions{FenceTTL: fence})
	if err != nil {
		return err
	}
	w.locker = gate(locker)
	return nil
}

// gated is a gate that closes the Locker behind it: tasks of one worker do not fight over Redis.
type gated struct {
	*locking.Gate
	io.Closer
}

func gate(l interface {
	locking.Locker
	io.Closer
},
) gated {
	return gated{locking.NewGate(l, locking.GateOptions{}), l}
}

// lockDialTimeout bounds the making of one connection for the locks.
const lockDialTimeout = 2 * time.Second

// lockAt returns where the locks are.
func (w *Worker) lockAt() Redis {
	if w.cfg.LockRedis.isZero() {
		return w.cfg.Redis
	}
	return w.cfg.LockRedis
}

// fenceTTL returns how long fence counters are kept: longer than any lease.
func fenceTTL(maxHold time.Duration) time.Duration {
	return max(locking.DefaultFenceTTL, 2*maxHold)
}

// lock returns the middleware for one handler.
func (w *Worker) lock(s middleware.Strategy, ttl, maxHold time.Duration, key middleware.KeyFunc) (asynq.MiddlewareFunc, error) {
	if s == nil {
		s = w.cfg.Strategy
	}
	if q, ok := s.(middleware.DelayQueuer); ok && q.DelayQueue() != "" {
		w.mu.Lock()
		w.waitIn = append(w.waitIn, q.DelayQueue())
		w.mu.Unlock()
	}
	setDefault(&ttl, w.cfg.LockTTL)
	setDefault(&maxHold, w.cfg.MaxHold)
	if fence := fenceTTL(w.cfg.MaxHold); maxHold >= fence {
		return nil, fmt.Errorf("MaxHold is %v, and fence counters are kept for %v: raise MaxHold of the worker's Config too", maxHold, fence)
	}
	return middleware.Lock(middleware.Options{
		Locker: w.locker, Key: key, Strategy: s, Queue: w.queue, TTL: ttl, MaxHold: maxHold, MaxKeySize: w.cfg.MaxKeySize, MaxKeys: w.cfg.MaxKeys,
		Sleepers: w.sleepers, Stopping: w.stopping, Observer: w.cfg.Observer, Logger: w.cfg.Logger,
	})
}

// leave passes on the wake that a task may have had, and with its headers its place in line, when it ends before it has come to its locks.
func (w *Worker) leave(ctx context.Context, headers map[string]string) {
	task, err := delayqueue.TaskOf(ctx)
	if err == nil {
		err = w.queue.Leave(ctx, task, headers)
	}
	if err != nil {
		w.cfg.Logger.WarnContext(ctx, "passing on a wake failed; the waiters' timers will bring them back", "error", err)
	}
}

// register adds a handler.
func (w *Worker) register(taskType string, h asynq.Handler) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != fresh {
		return fmt.Errorf("worker: handler of %q: the worker has been started: register handlers before", taskType)
	}
	if _, ok := w.handlers[taskType]; ok {
		return fmt.Errorf("worker: handler of %q: there is one already", taskType)
	}
	w.handlers[taskType] = h
	return nil
}

// ProcessTask runs the handler of the task's type. It is what asynq calls.
func (w *Worker) ProcessTask(ctx context.Context, task *asynq.Task) error {
	h, ok := w.handlers[task.Type()]
	if !ok {
		headers := task.Headers()
		if o, ok := w.cfg.Strategy.(middleware.Orderer); ok {
			if order, _ := o.TaskOrder(); order == middleware.KeepOrder {
				headers = nil // it fails, and keeps its place as others do
			}
		}
		w.leave(ctx, headers)
		return asynq.NotFound(ctx, task)
	}
	w.running.Add(1)
	defer w.running.Done()
	return h.ProcessTask(ctx, task)
}

// Run starts the worker, works until ctx ends, and shuts down. It returns nil after an orderly end, and an error when the
// worker could not start: Redis cannot be reached, is too old, or may evict tasks.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.Start(ctx); err != nil {
		return unlessInterrupted(ctx, err)
	}
	<-ctx.Done()
	return w.Shutdown()
}

// unlessInterrupted returns nil for an error that is there because ctx has ended: the worker was told to end before it had begun.
func unlessInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// Start checks that Redis is fit and starts to work on tasks. ctx bounds the check alone. When Redis is not fit the worker is closed.
func (w *Worker) Start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.state != fresh:
		return errors.New("worker: it has been started already, or is closed: make a new one")
	case len(w.handlers) == 0:
		return errors.New("worker: no handler is registered: call worker.Handle before")
	}
	if err := w.start(ctx); err != nil {
		return errors.Join(err, w.end())
	}
	w.state = started
	w.cfg.Logger.InfoContext(ctx, "worker started", "redis", w.cfg.Redis.String(), "locks", w.lockAt().String(),
		"queues", w.queues(), "concurrency", w.cfg.Concurrency, "fetchers", w.cfg.Fetchers)
	return nil
}

func (w *Worker) start(ctx context.Context) error {
	needs := access.Needs{Queues: slices.Sorted(maps.Keys(w.queues())), Locks: w.cfg.LockRedis.isZero()}
	if err := preflight(ctx, w.tasks, w.cfg.Redis, w.cfg.Redis.addrVariable("REDIS"), needs, w.cfg.AllowEviction, w.cfg.Logger); err != nil {
		return err
	}
	switch {
	case w.lockConn == nil:
		if err := w.preflightNodes(ctx); err != nil {
			return err
		}
	case !w.cfg.LockRedis.isZero():
		if err := preflight(ctx, w.lockConn, w.cfg.LockRedis, w.cfg.LockRedis.addrVariable(lockVariable), access.Needs{Locks: true}, w.cfg.AllowEviction, w.cfg.Logger); err != nil {
			return err
		}
	}
	for i := range w.cfg.Fetchers {
		conn := asynqconn.New(w.tasks, asynqconn.Options{
			Interval: w.cfg.TaskCheckInterval, Queues: len(w.queues()), Stopping: w.stopping, Wakes: w.woken, Logger: w.cfg.Logger,
		})
		s := asynq.NewServerFromRedisClient(conn, w.serverConfig(i))
		if err := s.Start(w); err != nil {
			return fmt.Errorf("worker: start server %d: %w", i+1, err)
		}
		w.servers = append(w.servers, s)
	}
	return nil
}

// serverConfig returns the configuration of the i-th asynq server.
func (w *Worker) serverConfig(i int) asynq.Config {
	c := w.cfg
	share := c.Concurrency / c.Fetchers
	if i < c.Concurrency%c.Fetchers {
		share++
	}
	return asynq.Config{
		Concurrency: share, Queues: w.queues(), StrictPriority: c.StrictPriority,
		TaskCheckInterval: asynqconn.CheckInterval, DelayedTaskCheckInterval: c.DelayedTaskCheckInterval,
		ShutdownTimeout: c.ShutdownTimeout, BaseContext: c.BaseContext,
		IsFailure:      middleware.IsFailure(c.IsFailure),
		RetryDelayFunc: middleware.RetryDelay(c.RetryDelayFunc),
		ErrorHandler:   middleware.ErrorHandler(c.ErrorHandler),
		Logger:         asynqLogger{c.Logger},
	}
}

// delayShare is the weight of a queue in comparison to its delay queue. asynq asks the queues one after another in a random
// order by weight, so an empty one that comes first costs a round trip.
const delayShare = 8

// queues returns the queues that asynq works on: ours, and the delay queue of each.
func (w *Worker) queues() map[string]int {
	queues := maps.Clone(w.cfg.Queues)
	for name, weight := range w.cfg.Queues {
		if w.cfg.StrictPriority {
			queues[name] = 2*weight - 1
			queues[name+delayqueue.Suffix] = 2 * weight // the tasks in it have waited before
			continue
		}
		queues[name] = delayShare * weight
		queues[name+delayqueue.Suffix] = weight
	}
	for _, name := range w.waitIn {
		if _, ok := queues[name]; !ok {
			queues[name] = 1
		}
	}
	return queues
}

// abandoned is how long a shutdown waits for handlers after their contexts were cancelled.
const abandoned = 5 * time.Second

// Shutdown ends the worker: no new task is started, tasks that wait in their slots are parked, running ones may go on for
// ShutdownTimeout and are then cancelled and requeued. It returns when all is closed. A second call does nothing.
func (w *Worker) Shutdown() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == closed {
		return nil
	}
	if w.state == started {
		w.cfg.Logger.Info("worker shuts down", "timeout", w.cfg.ShutdownTimeout)
	}
	return w.end()
}

// end closes everything, in the order that the parts need each other. The caller holds the mutex.
func (w *Worker) end() error {
	w.state = closed
	close(w.stopping)
	var all sync.WaitGroup
	for _, s := range w.servers {
		all.Go(s.Shutdown)
	}
	all.Wait()
	w.awaitHandlers()
	return w.close()
}

// awaitHandlers waits for the handlers that asynq has abandoned, so that they can still give their keys back.
func (w *Worker) awaitHandlers() {
	done := make(chan struct{})
	go func() {
		w.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(abandoned):
		w.cfg.Logger.Error("handlers do not heed the end of their context; their keys become free when their TTL ends")
	}
}

// close closes what New has made, in the order that its parts need each other. asynq panics on a client that is closed
// before its servers are shut down.
func (w *Worker) close() error {
	_ = w.queue.Close() // never fails
	return errors.Join(w.locker.Close(), w.closeClients())
}

func (w *Worker) closeClients() error {
	errs := []error{w.tasks.Close()}
	if w.lockConn != nil {
		errs = append(errs, w.lockConn.Close())
	}
	for _, client := range w.lockTest {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}
