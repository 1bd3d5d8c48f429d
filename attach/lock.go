package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/middleware"
)

// LockOptions configures the locks of one handler. Key must be set; every other zero field takes its value from
// [Options].
type LockOptions struct {
	// Key returns the keys of a task.
	Key middleware.KeyFunc
	// Strategy decides what happens in a conflict.
	Strategy middleware.Strategy
	// TTL is how long the locks outlive a crashed worker, and MaxHold how long a task may hold them. If the timeout of a
	// task (asynq.Timeout, 30 min by default) is longer than MaxHold, the task may lose its locks while it runs, and a
	// warning is logged.
	TTL, MaxHold time.Duration
	// Group is what other tasks may supersede: see [middleware.Supersede]. Handlers with the same Group form one. The type of each
	// task when empty.
	Group string
	// OnSuperseded is what becomes of a task that was superseded while it ran: [middleware.Archive], the default, or
	// [middleware.Discard].
	OnSuperseded middleware.Outcome
}

// Lock returns a middleware that runs a handler only while it holds the locks of its task's keys. Wrap each handler
// with it, rather than the whole mux. It panics if key is nil.
func (a *Attached) Lock(key middleware.KeyFunc) asynq.MiddlewareFunc {
	lock, err := a.LockWith(LockOptions{Key: key})
	if err != nil {
		panic(err) // about the key alone: New has checked the rest
	}
	return lock
}

// LockWith returns the middleware for a handler with its own options. If they are invalid, it reports all problems in
// one error. It cannot see how many keys the key function will return: if the tasks of a key run in order, a task with
// several keys is archived when it runs.
func (a *Attached) LockWith(o LockOptions) (asynq.MiddlewareFunc, error) {
	if o.Strategy == nil {
		o.Strategy = a.opts.Strategy
	}
	requeue, _ := middleware.RequeueOf(o.Strategy)
	if err := a.serve(requeue.Queue); err != nil {
		return nil, err
	}
	maxHold := cmp.Or(o.MaxHold, a.opts.MaxHold)
	lock, err := middleware.LockOn(a.server, middleware.Options{
		Locker: a.locker, Key: o.Key, Strategy: o.Strategy,
		TTL: cmp.Or(o.TTL, a.opts.TTL), MaxHold: maxHold, MaxKeySize: a.opts.MaxKeySize, MaxKeys: a.opts.MaxKeys,
		SlotBudget: a.opts.SlotBudget, Observer: a.opts.Observer, Logger: a.opts.Logger,
	}, taskrun.Group{Name: o.Group, Discard: o.OnSuperseded == middleware.Discard})
	if requeue.Order != middleware.BestEffort && (o.Group != "" || o.OnSuperseded != 0) {
		err = errors.Join(err, fmt.Errorf("attach: Group or OnSuperseded is set, and the strategy keeps the order %v: in order no task "+
			"is superseded: leave them out, or use BestEffort", requeue.Order))
	}
	if o.OnSuperseded != middleware.Archive && o.OnSuperseded != middleware.Discard {
		err = errors.Join(err, fmt.Errorf("attach: OnSuperseded is %q: use middleware.Archive or middleware.Discard", o.OnSuperseded))
	}
	if fence := FenceTTL(a.opts.MaxHold); maxHold >= fence {
		err = errors.Join(err,
			fmt.Errorf("attach: MaxHold is %v, but fence counters are kept for %v: also raise MaxHold of the Options "+
				"or of the worker's Config", maxHold, fence))
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

// Unlocked wraps a handler that needs no exclusion. Its tasks run without locks, but the server knows that they occupy
// a slot. Without it, the server would count their slots as free, and tasks that wait for a slot as lost wakes.
func (a *Attached) Unlocked(next asynq.Handler) asynq.Handler { return a.server.Budget.Occupy(next) }

// Waits reports whether err means that the task is waiting for its keys, or for lock servers that cannot be reached.
// Such a task has not failed.
func Waits(err error) bool { return err != nil && !isFailure(err) }

var isFailure = middleware.ServerConfig(asynq.Config{}).IsFailure
