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

// Worker runs handlers for the tasks of some queues. It is used once: call New, then Handle for each type of task, then
// Run.
type Worker struct {
	cfg      Config
	tasks    redis.UniversalClient
	lockConn redis.UniversalClient   // nil if the locks are on several servers
	locker   gated.Locker            // its RedisKeys is set if the locks are on the Redis of the tasks
	lockTest []redis.UniversalClient // of several lock servers, for the preflight
	attached *attach.Attached

	mu       sync.Mutex
	state    state
	handlers map[string]asynq.Handler
	patterns *asynq.ServeMux // handlers for several types of tasks
	matched  bool            // patterns is not empty
	around   []asynq.MiddlewareFunc
	handler  asynq.Handler // all handlers, with the middlewares around them
	servers  []*asynq.Server
}

type state int

const (
	fresh state = iota
	started
	closed
)

// New returns a worker that has not been started. It does not connect. If the configuration is invalid, New returns all
// faults at once.
func New(cfg Config) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &Worker{cfg: cfg.withDefaults(), handlers: map[string]asynq.Handler{}, patterns: asynq.NewServeMux()}
	w.tasks = cfg.Redis.client()
	if err := w.openLocks(); err != nil {
		return nil, errors.Join(err, w.closeClients())
	}
	// From here on the clients know the passwords. fmt would show them in a dump of the worker, because it calls no
	// methods of unexported fields.
	w.cfg.Redis, w.cfg.LockRedis = w.cfg.Redis.withoutSecrets(), w.cfg.LockRedis.withoutSecrets()
	if err := w.attach(); err != nil {
		return nil, errors.Join(err, w.locker.Close(), w.closeClients())
	}
	return w, nil
}

// attach makes everything that asynq's servers need besides the locks.
func (w *Worker) attach() (err error) {
	c := w.cfg
	cfg := asynq.Config{
		Concurrency: c.Concurrency, Queues: c.Queues, StrictPriority: c.StrictPriority,
		TaskCheckInterval: c.TaskCheckInterval, DelayedTaskCheckInterval: c.DelayedTaskCheckInterval,
		ShutdownTimeout: c.ShutdownTimeout, BaseContext: c.BaseContext, IsFailure: c.IsFailure,
		RetryDelayFunc: c.RetryDelayFunc, ErrorHandler: c.ErrorHandler, Logger: asynqLogger{c.Logger},
	}
	if c.Asynq != nil {
		c.Asynq(&cfg)
	}
	w.attached, err = attach.New(w.tasks, cfg, attach.Options{
		Locker: w.locker, RedisKeys: w.locker.RedisKeys, Strategy: c.Strategy, TTL: c.LockTTL, MaxHold: c.MaxHold,
		MaxKeySize: c.MaxKeySize, MaxKeys: c.MaxKeys,
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

// lockDialTimeout is the maximum time to establish one connection for the locks.
const lockDialTimeout = 2 * time.Second

// lockAt returns the Redis of the locks.
func (w *Worker) lockAt() Redis {
	if w.cfg.LockRedis.isZero() {
		return w.cfg.Redis
	}
	return w.cfg.LockRedis
}

// lock returns the middleware for one handler.
func (w *Worker) lock(
	s middleware.Strategy, ttl, maxHold time.Duration, key middleware.KeyFunc,
) (asynq.MiddlewareFunc, error) {
	return w.attached.LockWith(attach.LockOptions{Key: key, Strategy: s, TTL: ttl, MaxHold: maxHold})
}

// leave ends the wait of a task that ends before it has tried to lock its keys: it forwards a wake that the task may
// have received and, given its headers, removes the task from the sequence of its key.
func (w *Worker) leave(ctx context.Context, headers map[string]string) {
	task, err := parking.TaskOf(ctx)
	if err == nil {
		err = w.attached.Queue().ForwardWake(ctx, delayqueue.Task(task), headers)
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

// Use puts middlewares around all handlers, the first one outermost. They are outside of the locks, so they see the
// error of a task that waits ([attach.Waits]). Use returns an error once the worker has been started.
func (w *Worker) Use(middlewares ...asynq.MiddlewareFunc) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != fresh {
		return errors.New("worker: Use: the worker has been started: call it before")
	}
	w.around = append(w.around, middlewares...)
	return nil
}

// HandleTask registers an asynq handler for all types of tasks that begin with pattern, as asynq.ServeMux does: the
// longest pattern wins, and types that were registered with [Handle] take precedence. The tasks lock the keys that key
// returns, or none if key is nil. If anything is invalid, HandleTask returns an error and registers nothing.
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

// Schedule runs an asynq scheduler in one of all the workers that call it with the same name, beginning at once: see
// [attach.Attached.Schedule].
func (w *Worker) Schedule(
	name string, newScheduler func(client redis.UniversalClient) (attach.Scheduler, error),
) error {
	return w.attached.Schedule(name, newScheduler)
}

// Queue returns the queue of waiting tasks, which lists and reorders them.
func (w *Worker) Queue() *delayqueue.Queue { return w.attached.Queue() }

// Locker returns the Locker, for work on the same keys outside of tasks.
func (w *Worker) Locker() locking.Locker { return w.locker }

// ProcessTask runs the handler of the task's type, with the middlewares around it. asynq calls it.
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
			headers = nil // the task fails, and keeps its position as any failed task does
		}
		w.leave(ctx, headers)
		return asynq.NotFound(ctx, task)
	}
	return h.ProcessTask(ctx, task)
}

// Run starts the worker, works until ctx ends, and shuts down. It returns nil after an orderly shutdown, and an error
// if the worker could not start, for example because Redis cannot be reached, is too old, or may evict tasks.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.Start(ctx); err != nil {
		return unlessInterrupted(ctx, err)
	}
	<-ctx.Done()
	return w.Shutdown()
}

// unlessInterrupted returns nil instead of an error that was caused by the end of ctx, because the worker was told to
// stop before it had started.
func unlessInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// Start checks Redis and begins to work on tasks. ctx limits only the check. If Redis is not fit, the worker is closed.
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

// queues returns the queues that asynq works on: ours, and those in which strategies of handlers let tasks wait.
func (w *Worker) queues() map[string]int { return w.attached.Config().Queues }

// Shutdown stops the worker. It starts no new task and parks the tasks that wait in their slots. Running tasks may
// continue for ShutdownTimeout; then they are cancelled and returned to their queues. Shutdown returns when everything
// is closed. A second call does nothing.
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

// end closes everything. The caller holds the mutex.
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

// close closes what New has created, users before what they use. It is called after asynq's servers have shut down,
// because asynq panics if their client is closed earlier.
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
