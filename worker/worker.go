package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/gated"
	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// Worker runs handlers for the tasks of some queues. It is used once: New, Handle for each type, then Run.
type Worker struct {
	cfg      Config
	tasks    redis.UniversalClient
	lockConn redis.UniversalClient   // nil when the locks are on several servers
	locker   gated.Locker            // its RedisKeys is set if the locks are on the Redis of the tasks
	lockTest []redis.UniversalClient // of several servers for locks, until they were looked at
	attached *attach.Attached

	mu       sync.Mutex
	state    state
	handlers map[string]asynq.Handler
	patterns *asynq.ServeMux // of handlers for several types
	matched  bool            // there are some
	around   []asynq.MiddlewareFunc
	handler  asynq.Handler // all of these
	servers  []*asynq.Server
}

type state int

const (
	fresh state = iota
	started
	closed
)

// New returns a worker that is not started yet. It connects to nothing. It returns every fault of the configuration at
// once.
func New(cfg Config) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &Worker{cfg: cfg.withDefaults(), handlers: map[string]asynq.Handler{}, patterns: asynq.NewServeMux()}
	w.tasks = cfg.Redis.client()
	if err := w.openLocks(); err != nil {
		return nil, errors.Join(err, w.closeClients())
	}
	// From here on the clients know the passwords. fmt would show them in a dump of the worker, as it calls no method
	// of what a field without a capital leads to.
	w.cfg.Redis, w.cfg.LockRedis = w.cfg.Redis.withoutSecrets(), w.cfg.LockRedis.withoutSecrets()
	if err := w.attach(); err != nil {
		return nil, errors.Join(err, w.locker.Close(), w.closeClients())
	}
	return w, nil
}

// attach makes all that asynq's servers need besides the locks.
func (w *Worker) attach() (err error) {
	c := w.cfg
	cfg := asynq.Config{
		Concurrency: c.Concurrency, Queues: c.Queues, StrictPriority: c.StrictPriority,
		TaskCheckInterval: c.TaskCheckInterval, DelayedTaskCheckInterval: c.DelayedTaskCheckInterval,
		ShutdownTimeout: c.ShutdownTimeout, BaseContext: c.BaseContext,
		IsFailure: c.IsFailure, RetryDelayFunc: c.RetryDelayFunc, ErrorHandler: c.ErrorHandler, Logger: asynqLogger{c.Logger},
	}
	if c.Asynq != nil {
		c.Asynq(&cfg)
	}
	w.attached, err = attach.New(w.tasks, cfg, attach.Options{
		Locker: w.locker, RedisKeys: w.locker.RedisKeys, Strategy: c.Strategy, TTL: c.LockTTL, MaxHold: c.MaxHold, MaxKeySize: c.MaxKeySize, MaxKeys: c.MaxKeys,
		SlotBudget: c.SlotBudget, AllowEviction: c.AllowEviction, Observer: c.Observer, Logger: c.Logger,
	})
	return err
}

// openLocks makes the Locker. It has connections of its own, so that asynq's commands do not delay a renewal. They give
// up quickly on a server that cannot be reached, because each caller tries again or goes on without that server.
func (w *Worker) openLocks() (err error) {
	at := w.lockAt()
	if at.isRedlock() {
		for _, addr := range at.Nodes {
			node := at
			node.Addr, node.Nodes = addr, nil
			w.lockTest = append(w.lockTest, node.client(func(o *redis.UniversalOptions) {
				o.DialTimeout, o.DialerRetries, o.MaxRetries = lockDialTimeout, 1, -1
			}))
		}
		w.locker, err = gated.OnNodes(at.nodes(), w.cfg.LockGuard, w.cfg.MaxHold)
		return err
	}
	w.lockConn = at.client(func(o *redis.UniversalOptions) {
		o.DialTimeout, o.DialerRetries, o.MaxRetries = lockDialTimeout, 1, 1
	})
	w.locker, err = gated.OnClient(w.lockConn, w.cfg.MaxHold)
	if !w.cfg.LockRedis.isZero() {
		w.locker.RedisKeys = nil // another Redis than that of the tasks
	}
	return err
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

// lock returns the middleware for one handler.
func (w *Worker) lock(s middleware.Strategy, ttl, maxHold time.Duration, key middleware.KeyFunc) (asynq.MiddlewareFunc, error) {
	return w.attached.LockWith(attach.LockOptions{Key: key, Strategy: s, TTL: ttl, MaxHold: maxHold})
}

// leave passes on the wake that a task may have had, and with its headers its place in line, when it ends before it has
// come to its locks.
func (w *Worker) leave(ctx context.Context, headers map[string]string) {
	task, err := parking.TaskOf(ctx)
	if err == nil {
		err = w.attached.Queue().ForwardWake(ctx, delayqueue.Task(task), headers)
	}
	if err != nil {
		w.cfg.Logger.WarnContext(ctx, "passing on a wake failed; the waiters' timers will bring them back", "error",
			err)
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

// Use puts middlewares around all handlers, the first one outermost: outside of the locks, so that they see a task that
// waits as an error ([attach.Waits]). It returns an error once the worker has been started.
func (w *Worker) Use(middlewares ...asynq.MiddlewareFunc) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != fresh {
		return errors.New("worker: Use: the worker has been started: call it before")
	}
	w.around = append(w.around, middlewares...)
	return nil
}

// HandleTask registers a handler of asynq's for a type of tasks, or for all types that begin with pattern, as
// asynq.ServeMux has it: the longest pattern counts, and a type that [Handle] was called for goes there. The tasks lock
// the keys that key finds, and none when it is nil. It returns every fault at once.
func (w *Worker) HandleTask(pattern string, h asynq.Handler, key middleware.KeyFunc) error {
	if pattern == "" || h == nil {
		return fmt.Errorf("worker: handler of %q: neither the pattern nor the handler may be empty", pattern)
	}
	if key == nil {
		h = w.attached.Unlocked(h)
	} else {
		lock, err := w.lock(nil, 0, 0, key)
		if err != nil {
			return fmt.Errorf("worker: handler of %q: %w", pattern, err)
		}
		h = lock(h)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != fresh {
		return fmt.Errorf("worker: handler of %q: the worker has been started: register handlers before", pattern)
	}
	if _, taken := w.patterns.Handler(asynq.NewTask(pattern, nil)); taken == pattern {
		return fmt.Errorf("worker: handler of %q: there is one already", pattern)
	}
	w.patterns.Handle(pattern, h)
	w.matched = true
	return nil
}

// Schedule runs a scheduler of asynq's in one of all the workers that call it with the same name, from now on: see
// [attach.Attached.Schedule].
func (w *Worker) Schedule(name string, newScheduler func(client redis.UniversalClient) (attach.Scheduler, error)) error {
	return w.attached.Schedule(name, newScheduler)
}

// Queue returns the waiting tasks, to list and reorder them.
func (w *Worker) Queue() *delayqueue.Queue { return w.attached.Queue() }

// Locker returns the Locker, for work outside of tasks on the same keys.
func (w *Worker) Locker() locking.Locker { return w.locker }

// ProcessTask runs the handler of the task's type, with the middlewares around it. It is what asynq calls.
func (w *Worker) ProcessTask(ctx context.Context, task *asynq.Task) error {
	return w.handler.ProcessTask(ctx, task)
}

// process runs the handler of the task's type.
func (w *Worker) process(ctx context.Context, task *asynq.Task) error {
	h, ok := w.handlers[task.Type()]
	if !ok {
		var pattern string
		h, pattern = w.patterns.Handler(task)
		ok = pattern != ""
	}
	if !ok {
		headers := task.Headers()
		if requeue, ok := middleware.RequeueOf(w.cfg.Strategy); ok && requeue.Order == middleware.StrictFIFO {
			headers = nil // it fails, and keeps its place as others do
		}
		w.leave(ctx, headers)
		return asynq.NotFound(ctx, task)
	}
	return h.ProcessTask(ctx, task)
}

// Run starts the worker, works until ctx ends, and shuts down. It returns nil after an orderly end, and an error when
// the worker could not start: Redis cannot be reached, is too old, or may evict tasks.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.Start(ctx); err != nil {
		return unlessInterrupted(ctx, err)
	}
	<-ctx.Done()
	return w.Shutdown()
}

// unlessInterrupted returns nil for an error that is there because ctx has ended: the worker was told to end before it
// had begun.
func unlessInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// Start checks that Redis is fit and starts to work on tasks. ctx bounds the check alone. When Redis is not fit the
// worker is closed.
func (w *Worker) Start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.state != fresh:
		return errors.New("worker: it has been started already, or is closed: make a new one")
	case len(w.handlers) == 0 && !w.matched:
		return errors.New("worker: no handler is registered: call worker.Handle before")
	}
	w.handler = asynq.HandlerFunc(w.process)
	for _, m := range slices.Backward(w.around) {
		w.handler = m(w.handler)
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
	if err := w.preflight(ctx); err != nil {
		return err
	}
	for i := range w.cfg.Fetchers {
		s := asynq.NewServerFromRedisClient(w.attached.Client(), w.serverConfig(i))
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
	cfg := w.attached.Config()
	cfg.Concurrency = share
	return cfg
}

// queues returns the queues that asynq works on: ours, and those that handlers' strategies have tasks wait in.
func (w *Worker) queues() map[string]int { return w.attached.Config().Queues }

// Shutdown ends the worker: no new task is started, tasks that wait in their slots are parked, running ones may go on
// for ShutdownTimeout and are then cancelled and requeued. It returns when all is closed. A second call does nothing.
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
	w.attached.Stop()
	var all sync.WaitGroup
	for _, s := range w.servers {
		all.Go(s.Shutdown)
	}
	all.Wait()
	return w.close()
}

// close closes what New has made, in the order that its parts need each other. asynq panics on a client that is closed
// before its servers are shut down.
func (w *Worker) close() error {
	return errors.Join(w.attached.Close(), w.locker.Close(), w.closeClients())
}

func (w *Worker) closeClients() error {
	var errs []error
	if w.cfg.Redis.Client == nil {
		errs = append(errs, w.tasks.Close())
	}
	if w.lockConn != nil && w.lockAt().Client == nil {
		errs = append(errs, w.lockConn.Close())
	}
	for _, client := range w.lockTest {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}
