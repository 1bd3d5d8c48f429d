package attach

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/logsafe"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// EnqueueContext enqueues a task as asynq's Client does. opts may be asynq's options and those of this package, [Keys],
// [WhenHeld] and [Latest]; the latter have no effect as options of asynq.NewTask. It returns a [middleware.KeyError] if the
// task's keys are not usable, and a [middleware.ConflictError] if WhenHeld refuses the task; in both cases nothing is
// enqueued. All other errors are asynq's own.
//
// Durations and times that asynq would silently truncate to whole seconds are rounded up instead, except a Deadline.
//
// A task is enqueued only once, even if the connection breaks before the reply arrives and the command is sent again,
// unless the task has completed by then.
func (p *Producer) EnqueueContext(
	ctx context.Context, task *asynq.Task, opts ...asynq.Option,
) (*asynq.TaskInfo, error) {
	if task == nil {
		return nil, errors.New("attach: enqueue: the task is nil")
	}
	opts = wholeSeconds(opts)
	keys, strategy, err := p.read(ctx, task, opts)
	if err != nil {
		return nil, err
	}
	if l := latestOf(opts); l != nil {
		return p.enqueueLatest(ctx, task, keys, *l, strategy, opts)
	}
	add := line.EnqueueOptions{Keys: keys}
	if strategy == nil {
		return p.engine().Enqueue(ctx, task, add, opts...)
	}
	add.AtOnce = true
	if p.opts.RedisKeys != nil && p.engine().Names().InOneLane(keys) {
		look := add
		for _, key := range keys {
			lock, _ := p.opts.RedisKeys(key)
			look.Locks = append(look.Locks, lock)
		}
		info, err := p.engine().Enqueue(ctx, task, look, opts...)
		if !errors.Is(err, line.ErrLocked) && !errors.Is(err, line.ErrForeign) {
			return info, err
		}
	}
	held, err := p.ask(ctx, keys, 0, line.Task{})
	if err != nil {
		return nil, fmt.Errorf("attach: enqueue: whether a key is held is not known: %w", logsafe.Error(err))
	}
	return p.decide(ctx, task, strategy, held, add, opts)
}

// EnqueueInOrder enqueues a task at the end of the sequence of a business key: with [middleware.FIFO] or
// [middleware.StrictFIFO], the tasks of a key run in the order of these calls, whichever queues they are in. If the
// error matches [delayqueue.ErrNotInSequence], the task is enqueued, but joins the sequence only when it runs: do not
// enqueue it again. Tasks that are due later, or were enqueued in another way, join the sequence when they first run.
//
// The key must be the only key that the handler finds in the task, and the handler must use one of these orders.
// EnqueueInOrder returns a [middleware.KeyError] if the key is not usable, [delayqueue.ErrUnknownAsynq] if this asynq's
// scripts are not known, and an error for the options [Keys] and [WhenHeld], which make no sense here. In these cases
// nothing is enqueued.
func (p *Producer) EnqueueInOrder(
	ctx context.Context, key string, task *asynq.Task, opts ...asynq.Option,
) (*asynq.TaskInfo, error) {
	if task == nil {
		return nil, errors.New("attach: enqueue in order: the task is nil")
	}
	if _, err := p.limits().Check([]string{key}); err != nil {
		return nil, &middleware.KeyError{Type: task.Type(), Err: err}
	}
	for _, o := range opts {
		if _, own := o.(option); own {
			return nil, errors.New("attach: enqueue in order: leave out Keys and WhenHeld: " +
				"the key is the argument, and the task joins its sequence whether the key is held or not")
		}
	}
	if latestOf(opts) != nil {
		return nil, errors.New("attach: enqueue in order: leave out Latest: in order each task runs")
	}
	return p.engine().EnqueueInOrder(ctx, key, task.Type(), task.Payload(), task.Headers(), wholeSeconds(opts)...)
}

func (p *Producer) engine() *line.Engine { return (*line.Engine)(p.queue) }

// read returns the keys of a task, and what to do when one is held: nil for nothing.
func (p *Producer) read(
	ctx context.Context, task *asynq.Task, opts []asynq.Option,
) (keys []string, s middleware.Strategy, err error) {
	find := p.opts.Keys[task.Type()]
	for _, o := range opts {
		switch o, ok := o.(option); {
		case ok && o.strategy != nil:
			s = o.strategy
		case ok && o.keys != nil: // WhenHeld(nil) has neither
			find = func(context.Context, *asynq.Task) ([]string, error) { return o.keys, nil }
		}
	}
	switch {
	case find != nil:
		if keys, err = find(ctx, task); err == nil {
			keys, err = p.limits().Check(keys)
		}
	case s != nil:
		err = errors.New("WhenHeld needs the keys of the task: give them with Keys, or a key function for its type")
	}
	if err != nil {
		err = &middleware.KeyError{Type: task.Type(), Err: err}
	}
	if s == nil || err != nil {
		return keys, nil, err
	}
	if v, ok := s.(interface{ Validate() error }); ok {
		err = v.Validate()
	}
	if requeue, ok := middleware.RequeueOf(s); ok && (requeue.Order != middleware.BestEffort || requeue.Queue != "") {
		err = errors.Join(err, errors.New("attach: WhenHeld can neither keep an order nor transfer tasks: "+
			"enqueue the task in order, or into that queue"))
	}
	return keys, s, err
}

// releaseTimeout is the maximum duration of a release and the wakes after it.
const releaseTimeout = 5 * time.Second

// askTTL is how long a key stays locked if a producer crashes while it checks whether the key is free.
const askTTL = 5 * time.Second

// ask returns the holder of one of the keys, or nil if all are free. If notify is not zero, a release within that time
// wakes waiters, and t is parked on the keys and comes back if they are free.
func (p *Producer) ask(ctx context.Context, keys []string, notify time.Duration, t line.Task) (*locking.HeldError, error) {
	ctx = locking.NewContext(ctx, nil) // a handler may enqueue tasks for its own keys
	lease, err := p.opts.Locker.Acquire(ctx, keys, locking.Options{TTL: askTTL, Notify: notify})
	if held, ok := errors.AsType[*locking.HeldError](err); ok {
		return held, nil
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := lease.Release(ctx); err != nil {
		p.opts.Logger.WarnContext(ctx, "a key could not be released; it becomes free when its TTL ends", "error",
			logsafe.Error(err))
	}
	if notify > 0 || lease.ShouldNotify() {
		for _, key := range keys {
			if err := p.wake(ctx, key, t); err != nil {
				p.opts.Logger.WarnContext(ctx, "the next task was not woken; the wake is made again once Redis answers", "error",
					err)
			}
		}
	}
	return nil, nil //nolint:nilnil // no key is held, and nothing is wrong
}

// wake wakes the next waiter of a key that was free, or the parked task t unless it is woken already.
func (p *Producer) wake(ctx context.Context, key string, t line.Task) (err error) {
	if t == (line.Task{}) {
		_, err = p.engine().Wake(ctx, key, line.WakeOptions{})
	} else {
		_, err = p.engine().ComeBack(ctx, key, t)
	}
	return err
}

// decide does what the strategy decides about a task. held is the refusal of one of its keys; nil if all are free.
func (p *Producer) decide(
	ctx context.Context, task *asynq.Task, s middleware.Strategy, held *locking.HeldError,
	add line.EnqueueOptions, opts []asynq.Option,
) (*asynq.TaskInfo, error) {
	var d middleware.Decision
	if held != nil {
		now := time.Now()
		conflict := middleware.Conflict{
			Type: task.Type(), Key: held.Key, Holder: held.Holder, Attempt: 1, FirstAt: now, Now: now,
		}
		d = s.Decide(conflict)
		if d.Outcome < middleware.Archive || d.Outcome > middleware.WaitInSlot {
			return nil, fmt.Errorf("attach: enqueue: the strategy returned the outcome %q, which it cannot choose", d.Outcome)
		}
		if d.Supersede != nil {
			if err := stopsItself(ctx, task, add.Keys); err != nil {
				return nil, err
			}
		}
		if d.Delay <= 0 {
			d.Delay = middleware.Requeue{}.Decide(conflict).Delay
		}
		if d.Outcome <= middleware.Complete {
			err := refusal(task, held, now)
			p.observe(ctx, middleware.Refused, delayqueue.Task{}, task, add.Keys, held, nil)
			p.observe(ctx, middleware.Ended, delayqueue.Task{}, task, add.Keys, held, err)
			return nil, err
		}
	}
	if d.Outcome == middleware.Park {
		add.WaitFor, add.ParkOptions = held.Key, line.ParkOptions{
			RetryAfter: d.Delay, MaxWaiters: d.Limits.Waiters, MaxTotal: d.Limits.Total, MaxAge: d.Limits.Age,
			Foremost: foremost(task, d.Supersede),
		}
		info, err := p.engine().Enqueue(ctx, task, add, opts...)
		if err == nil {
			t := delayqueue.Task{Queue: info.Queue, ID: info.ID}
			p.observe(ctx, middleware.Refused, t, task, add.Keys, held, nil)
			p.observe(ctx, middleware.Parked, t, task, add.Keys, held, nil)
			if d.Supersede != nil {
				p.supersede(ctx, supersession(task, add.Keys, t, d.Supersede), held.Key)
			}
			// The key may have been released before the task was among its waiters.
			_, asked := p.ask(context.WithoutCancel(ctx), []string{held.Key}, taskrun.NotifyFor+d.Delay, line.Task(t))
			if asked != nil {
				p.opts.Logger.WarnContext(ctx, "cannot tell whether a key is still held; the task's timer will bring it back",
					"error", logsafe.Error(asked))
			}
		}
		if !errors.Is(err, line.ErrForeign) {
			return info, err
		}
		add.WaitFor = ""
	}
	info, err := p.engine().Enqueue(ctx, task, add, opts...)
	if errors.Is(err, line.ErrForeign) {
		add.AtOnce = false
		return p.engine().Enqueue(ctx, task, add, opts...)
	}
	return info, err
}

// observe reports an event of a wait that begins at an enqueue.
func (p *Producer) observe(
	ctx context.Context, kind middleware.EventKind, t delayqueue.Task, task *asynq.Task, keys []string,
	held *locking.HeldError, err error,
) {
	e := middleware.Event{Kind: kind, Task: t, Type: task.Type(), Keys: keys, Key: held.Key, Err: err}
	if held.Holder != (locking.Holder{}) {
		e.Holder = &held.Holder
	}
	tell(ctx, p.opts.Observer, p.opts.Logger, &e)
}

// refusal returns the error for a task that is not enqueued.
func refusal(task *asynq.Task, held *locking.HeldError, now time.Time) *middleware.ConflictError {
	e := &middleware.ConflictError{
		Type: task.Type(), Key: held.Key, Holder: held.Holder, Outcome: middleware.NotEnqueued, Conflicts: 1,
		RetryAfter: max(held.Holder.Remaining, 0),
	}
	if !held.Holder.Since.IsZero() {
		e.Held = max(now.Sub(held.Holder.Since), 0)
	}
	return e
}
