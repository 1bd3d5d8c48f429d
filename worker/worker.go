package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// Worker runs handlers for the tasks of some queues. It can be used only once: call New, then Handle for each type of
// task, then Run.
type Worker struct {
	cfg      Config
	tasks    redis.UniversalClient
	lockConn redis.UniversalClient       // nil if the locks are on several servers, or not on Redis
	locker   taskrun.Locker              // its RedisKeys is set if the locks are on the Redis of the tasks
	lockTest []redis.UniversalClient     // of several lock servers, for the preflight
	made     struct{ tasks, locks bool } // the clients that are not the caller's
	attached *attach.Attached

	mu       sync.Mutex
	state    state
	handlers map[string]asynq.Handler
	patterns *asynq.ServeMux // handlers for several types of tasks
	matched  bool            // patterns is not empty
	around   []asynq.MiddlewareFunc
	handler  asynq.Handler // all handlers, with the middlewares around them
	server   *asynq.Server
}

type state int

const (
	fresh state = iota
	started
	closed
)

// New returns a worker that has not been started. It does not connect. If the configuration is invalid, New reports all
// problems in one error.
func New(cfg Config) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &Worker{cfg: cfg.withDefaults(), handlers: map[string]asynq.Handler{}, patterns: asynq.NewServeMux()}
	var err error
	if w.tasks, w.made.tasks, err = cfg.Redis.client(); err != nil {
		return nil, err
	}
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
		Locker: w.locker.Gate, RedisKeys: w.locker.RedisKeys, Strategy: c.Strategy, TTL: c.LockTTL, MaxHold: c.MaxHold,
		MaxKeySize: c.MaxKeySize, MaxKeys: c.MaxKeys,
		SlotBudget: c.SlotBudget, AllowEviction: c.AllowEviction, AllowUnknownAsynq: c.AllowUnknownAsynq,
		AllowSeparateLocks: c.AllowSeparateLocks, Lanes: c.Redis.Lanes,
		DisableReports: c.DisableReports, Recovery: c.Recovery, Observer: c.Observer, Logger: c.Logger,
		OnArchived: c.OnArchived, OnCompleted: c.OnCompleted,
	})
	return err
}

// leave ends the wait of a task that ends before it has tried to lock its keys: it forwards a wake that the task may
// have received and, unless it stays there, removes the task from the sequence of its key.
func (w *Worker) leave(ctx context.Context, stays bool) {
	task, err := line.TaskOf(ctx)
	if err == nil {
		err = w.attached.Queue().ForwardWake(ctx, delayqueue.Task(task), stays)
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
		lock, err := w.attached.LockWith(attach.LockOptions{Key: key})
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

// Schedule runs an asynq scheduler in one of the workers that call it with the same name, starting at once: see
// [attach.Attached.Schedule].
func (w *Worker) Schedule(
	name string, newScheduler func(client redis.UniversalClient) (attach.Scheduler, error),
) error {
	return w.attached.Schedule(name, newScheduler)
}

// Queue returns the queue of waiting tasks, which lists and reorders them.
func (w *Worker) Queue() *delayqueue.Queue { return w.attached.Queue() }

// Locker returns a Locker for work on the same keys outside of tasks, such as an HTTP request. The release of one of its
// leases wakes the next task that waits for each key: see [attach.Attached.Locker].
func (w *Worker) Locker() locking.Locker { return w.attached.Locker() }

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
		// Under StrictFIFO the task fails, and keeps its position as any failed task does.
		requeue, ok := middleware.RequeueOf(w.cfg.Strategy)
		w.leave(ctx, ok && requeue.Order == middleware.StrictFIFO)
		return asynq.NotFound(ctx, task)
	}
	return h.ProcessTask(ctx, task)
}
