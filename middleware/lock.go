package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
)

// Options configures [Lock]. Locker, Key and Strategy must be set; every other field has a default.
type Options struct {
	// Locker locks the keys.
	Locker locking.Locker

	// Key returns the business keys of a task.
	Key KeyFunc

	// Strategy decides what happens to a task in conflict. It must not park tasks: only package attach and package worker
	// have a place for them.
	Strategy Strategy

	// TTL and MaxHold are as in [locking.Options]: 30 s and 30 min when zero. TTL must be below 55 s, because asynq may
	// bring back the task of a crashed worker after that time. A warning is logged once for each type of task that may
	// run for longer than MaxHold (asynq.Timeout, asynq.Deadline).
	TTL, MaxHold time.Duration

	// Label identifies this process to tasks that are refused a key; "host/pid" when empty. The type and ID of the task
	// are appended to it.
	Label string

	// MaxKeySize is the maximum length of a key in bytes; 1024 when zero. MaxKeys is the maximum number of keys of a
	// task; 100 when zero.
	MaxKeySize, MaxKeys int

	// SlotBudget is the maximum number of tasks that wait in their slots; half of the server's Concurrency when zero, or of
	// the number of CPUs where it is not known, but at least one. None when negative.
	SlotBudget int

	// Observer receives every event; nil disables it.
	Observer Observer

	// Logger receives failures and other messages for operators, with hashed keys; nil disables it.
	Logger *slog.Logger
}

// Validate returns an error that lists all problems with the options, or nil.
func (o Options) Validate() error { return o.validate(&taskrun.Server{}) }

// validate is Validate for the handlers of a server.
func (o Options) validate(on *taskrun.Server) error {
	var errs []error
	if o.Locker == nil {
		errs = append(errs,
			errors.New("middleware: Locker is not set: give a locking.Locker, such as locking.NewSingle"))
	}
	if o.Key == nil {
		errs = append(errs,
			errors.New("middleware: Key is not set: say how a task's key is found, for example with PayloadKey"))
	}
	if o.MaxKeySize < 0 {
		errs = append(errs, fmt.Errorf("middleware: MaxKeySize is %d: it cannot be negative", o.MaxKeySize))
	}
	if o.MaxKeys < 0 {
		errs = append(errs, fmt.Errorf("middleware: MaxKeys is %d: it cannot be negative", o.MaxKeys))
	}
	if v, ok := o.Strategy.(validator); ok {
		errs = append(errs, v.Validate())
	}
	if on.Queue == nil && needsQueue(o.strategy()) {
		errs = append(errs,
			errors.New("middleware: the strategy may park tasks, but there is no place for them: "+
				"make the middleware with package attach or worker, or let the strategy end in FailFast"))
	}
	errs = append(errs, locking.Options{TTL: o.TTL, MaxHold: o.MaxHold}.Validate())
	if o.TTL >= taskrun.MaxTTL {
		errs = append(errs,
			fmt.Errorf("middleware: TTL is %v: it must be below %v, because asynq brings back the task of a crashed worker "+
				"after 55 to 120 s: lower it; a lease renews itself as long as the handler runs", o.TTL, taskrun.MaxTTL))
	}
	return errors.Join(errs...)
}

func (o Options) strategy() Strategy {
	if o.Strategy == nil {
		return Requeue{}
	}
	return o.Strategy
}

// Lock returns a middleware that runs a handler only while it holds the locks of its task's keys. If the options are
// invalid, Lock reports all problems in one error.
//
// The handler's context carries the lease ([locking.FromContext]) and ends when the lease is lost. If the lease was
// lost, a handler that returns nil has failed with an error that matches [locking.ErrLost]: the task uses up a retry,
// and is archived on its last attempt. It has not failed if the lease has merely expired, because Redis stood still, and
// the servers say that no other owner has had the keys. To prevent a failure, a handler calls Lease.MarkCommitted once its work is committed,
// for example after fence.SQL.Do. If the lease is found to be lost only when asynq acknowledges the task, the task runs
// again after a second, without using up a retry. The lease is held until the handler returns, even if asynq has
// abandoned the task.
//
// The server must use a Config made by [ServerConfig], such as the one that attach.Attached.Config returns. Without it,
// a task that cannot reach the lock servers counts as failed: it uses up a retry, and is archived on its last attempt.
// Tasks that are parked still wait, and an error is logged.
func Lock(opts Options) (asynq.MiddlewareFunc, error) { return LockOn(&taskrun.Server{}, opts) }

// LockOn is Lock for package attach: a middleware of one of its servers.
func LockOn(on *taskrun.Server, opts Options) (asynq.MiddlewareFunc, error) {
	if err := opts.validate(on); err != nil {
		return nil, err
	}
	l := &lock{
		Options: opts, Server: on, SlotBudget: budgetOf(on, opts.SlotBudget), opts: locking.Options{TTL: opts.TTL, MaxHold: opts.MaxHold},
		limits: taskrun.Limits{Keys: opts.MaxKeys, Size: opts.MaxKeySize},
	}
	l.backend = locks.Backend(opts.Locker)
	l.Strategy, l.Label = opts.strategy(), cmp.Or(opts.Label, locking.DefaultLabel())
	if _, ok := l.Strategy.(FailFast); !ok {
		l.notifyFor = taskrun.NotifyFor
	}
	if l.Logger == nil {
		l.Logger = slog.New(slog.DiscardHandler)
	}
	if requeue, ok := RequeueOf(l.Strategy); ok {
		l.order, l.maxAge, l.toQueue = requeue.Order, requeue.Limits.Age, requeue.Queue
	}
	l.watcher, _ = opts.Locker.(locking.Watcher)
	l.early = taskrun.IsKnownEarly(opts.Key)
	l.colocated = l.engine().Colocates(locks.Colocated(opts.Locker))
	l.reported().CountSlots(l.SlotBudget.inUse)
	return func(next asynq.Handler) asynq.Handler {
		return l.SlotBudget.Occupy(asynq.HandlerFunc(func(ctx context.Context,
			task *asynq.Task,
		) error {
			pipeline.GrowStack()
			return l.process(ctx, task, next)
		}))
	}, nil
}

// locks does what package locking does not export.
var locks = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

// lock is shared by all tasks of a middleware.
type lock struct {
	Options // with its defaults
	*taskrun.Server
	SlotBudget *slotBudget     // of the server
	watcher    locking.Watcher // nil if the locker does not notify of releases
	colocated  bool            // the locks can be taken and released with the tasks
	early      bool            // the keys of a task are known before its run
	backend    string          // of the locker, for the observer
	toQueue    string          // the queue in which tasks wait; "" for their own queue
	opts       locking.Options
	notifyFor  time.Duration // how long a refused attempt subscribes to the release
	limits     taskrun.Limits
	order      Order
	maxAge     time.Duration // the limit on age; 0 for none
	warned     sync.Map      // task types for which warnOfMaxHold has logged
	held       atomic.Int64  // how long handlers take: a moving average in ns
}

// engine returns what parks and wakes tasks; nil if there is no Queue.
func (l *lock) engine() *line.Engine { return (*line.Engine)(l.Queue) }

// process runs a task.
func (l *lock) process(ctx context.Context, task *asynq.Task, next asynq.Handler) error {
	r, err := l.begin(ctx, task)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned {
			r.abandon(ctx)
		}
		r.active.End(ctx)
	}()
	err = r.process(ctx, next)
	returned = true
	return err
}
