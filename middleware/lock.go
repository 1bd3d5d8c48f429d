package middleware

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
)

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
func Lock(opts Options) (asynq.MiddlewareFunc, error) {
	return LockOn(&taskrun.Server{}, opts, taskrun.Group{})
}

// LockOn is Lock for package attach: a middleware of one of its servers, for tasks of a group.
func LockOn(on *taskrun.Server, opts Options, group taskrun.Group) (asynq.MiddlewareFunc, error) {
	if err := opts.validate(on); err != nil {
		return nil, err
	}
	l := &lock{
		Options: opts, Server: on, SlotBudget: budgetOf(on, opts.SlotBudget), opts: locking.Options{TTL: opts.TTL, MaxHold: opts.MaxHold},
		group: group, limits: taskrun.Limits{Keys: opts.MaxKeys, Size: opts.MaxKeySize},
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
	l.apart = l.Queue != nil && !l.engine().HasColocated()
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
