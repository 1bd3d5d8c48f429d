package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/internal/tasklock"
	"github.com/railtoken/railtoken/locking"
)

// Keys returns an option for [Producer.EnqueueContext]: the business keys of the task, as the key function of its handler finds them. They are recorded with the task,
// in place of those of [ProducerOptions].Keys. The handler runs under the keys that its own function finds, whatever was recorded.
func Keys(keys ...string) asynq.Option { return option{keys: append([]string{}, keys...)} }

// WhenHeld returns an option for [Producer.EnqueueContext] that decides at once about a task one of whose keys is held. A strategy that fails, such as [FailFast],
// enqueues nothing: the caller gets a [ConflictError] with the key, its holder and RetryAfter. One that parks, such as [Requeue], enqueues the task
// among the waiters of the key, without a run; its Delay and Limits count. Any other, and no option, enqueues the task as ever, and so does every strategy when
// the key is free. A task that is due later or joins a group is refused with delayqueue.ErrNotNow.
//
// It says nothing about the moment after: a task that was enqueued may still meet another holder, and its handler's strategy decides then. Handlers that run in
// order do not wake a task that was parked so: it waits for its own timer.
func WhenHeld(s Strategy) asynq.Option { return option{strategy: s} }

// option is an option that asynq passes over.
type option struct {
	keys     []string
	strategy Strategy
}

func (o option) String() string {
	if o.strategy != nil {
		return fmt.Sprintf("WhenHeld(%T)", o.strategy)
	}
	return fmt.Sprintf("Keys(%d)", len(o.keys)) // they are business data
}

func (option) Type() asynq.OptionType { return -1 }
func (o option) Value() any           { return o }

// ProducerOptions configures [NewProducer]. Queue must be set, and Locker for [WhenHeld]; every other zero value is a default.
type ProducerOptions struct {
	// Queue is the delay queue on the Redis of the tasks.
	Queue *delayqueue.Queue
	// Locker is that of the workers, or one on the same servers. LockNames is that of [Options]: with it a free key costs no call beyond the enqueue, and
	// nothing comes between the look at the lock and the enqueue.
	Locker    locking.Locker
	LockNames func(key string) (lock, interest string)
	// Keys finds the keys of the tasks of some types, for those that are enqueued without the option [Keys].
	Keys map[string]KeyFunc
	// MaxKeySize and MaxKeys are those of [Options].
	MaxKeySize, MaxKeys int
	// Observer is told of the waits that begin with an enqueue: a Refused, and an Ended with the ConflictError or a Parked. nil disables it.
	Observer Observer
	// Logger receives what went wrong in the background; silent when nil.
	Logger *slog.Logger
}

// Producer enqueues tasks whose keys are known when they are enqueued. It is safe for use by many goroutines at the same time.
type Producer struct {
	opts   ProducerOptions
	engine *parking.Engine
	limits tasklock.Limits
}

// NewProducer returns a Producer. It panics when there is no Queue.
func NewProducer(opts ProducerOptions) *Producer {
	if opts.Queue == nil {
		panic("middleware: NewProducer needs a delayqueue.Queue")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Producer{opts, (*parking.Engine)(opts.Queue), tasklock.Limits{Keys: opts.MaxKeys, Size: opts.MaxKeySize}}
}

// EnqueueContext enqueues a task as asynq's Client does, with asynq's options and those of this package ([Keys], [WhenHeld]), which must be among opts: asynq does
// not show those of asynq.NewTask. The error is a [KeyError] when keys were to be found and are not usable, a [ConflictError] by WhenHeld, or asynq's own; nothing is
// enqueued after the first two.
//
// A task is enqueued once, also when the connection breaks before the answer is there, unless it is done by the time that it is sent again.
func (p *Producer) EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	if task == nil {
		return nil, errors.New("middleware: enqueue: the task is nil")
	}
	keys, strategy, err := p.read(ctx, task, opts)
	if err != nil {
		return nil, err
	}
	add := parking.AddOptions{Keys: keys}
	if strategy == nil {
		return p.engine.Add(ctx, task, add, opts...)
	}
	add.AtOnce = true
	if p.opts.LockNames != nil {
		look := add
		for _, key := range keys {
			lock, _ := p.opts.LockNames(key)
			look.Locks = append(look.Locks, lock)
		}
		info, err := p.engine.Add(ctx, task, look, opts...)
		if !errors.Is(err, parking.ErrLocked) && !errors.Is(err, parking.ErrForeign) {
			return info, err
		}
	}
	held, err := p.ask(ctx, keys, 0)
	if err != nil {
		return nil, fmt.Errorf("middleware: enqueue: whether a key is held is not known: %w", withoutKeys(err))
	}
	return p.decide(ctx, task, strategy, held, add, opts)
}

// read returns the keys of a task and what to do when one is held, nil for nothing.
func (p *Producer) read(ctx context.Context, task *asynq.Task, opts []asynq.Option) (keys []string, s Strategy, err error) {
	find := p.opts.Keys[task.Type()]
	for _, o := range opts {
		switch o, ok := o.(option); {
		case ok && o.strategy != nil:
			s = o.strategy
		case ok && o.keys != nil: // a WhenHeld of nil is nothing
			find = FixedKey(o.keys...)
		}
	}
	switch {
	case find != nil:
		keys, err = keysOf(ctx, find, task, p.limits)
	case s != nil:
		err = &KeyError{Type: task.Type(), Err: errors.New("WhenHeld needs the keys of the task: give them with Keys, or a key function for its type")}
	}
	if s == nil || err != nil {
		return keys, nil, err
	}
	if v, ok := s.(validator); ok {
		err = v.Validate()
	}
	if requeue, ok := RequeueOf(s); ok && (requeue.Order != BestEffort || requeue.Queue != "") {
		err = errors.Join(err, errors.New("middleware: WhenHeld can neither keep an order nor transfer tasks: enqueue the task in order, or into that queue"))
	}
	if p.opts.Locker == nil {
		err = errors.Join(err, errors.New("middleware: WhenHeld needs to know who holds a key: set ProducerOptions.Locker"))
	}
	return keys, s, err
}

// askTTL is how long a key stays locked when a producer dies that has just looked whether it is free.
const askTTL = 5 * time.Second

// ask returns who holds one of the keys, or nil. For some interest the holder wakes waiters at its release.
func (p *Producer) ask(ctx context.Context, keys []string, interest time.Duration) (*locking.HeldError, error) {
	ctx = locking.NewContext(ctx, nil) // a handler may enqueue tasks for its own keys
	lease, err := p.opts.Locker.Acquire(ctx, keys, locking.Options{TTL: askTTL, Notify: interest})
	if held, ok := errors.AsType[*locking.HeldError](err); ok {
		return held, nil
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTimeout)
	defer cancel()
	if err := lease.Release(ctx); err != nil {
		p.opts.Logger.WarnContext(ctx, "a key could not be given back; it becomes free when its TTL ends", "error", withoutKeys(err))
	}
	if interest > 0 || lease.ShouldNotify() {
		for _, key := range keys {
			if _, err := p.engine.Wake(ctx, key, parking.WakeOptions{}); err != nil {
				p.opts.Logger.WarnContext(ctx, "the next task was not woken; its timer will bring it back", "error", err)
			}
		}
	}
	return nil, nil //nolint:nilnil // no key is held, and nothing is wrong
}

// decide does what the strategy says about a task, one of whose keys is held unless held is nil.
func (p *Producer) decide(
	ctx context.Context, task *asynq.Task, s Strategy, held *locking.HeldError, add parking.AddOptions, opts []asynq.Option,
) (*asynq.TaskInfo, error) {
	var d Decision
	if held != nil {
		now := time.Now()
		d = s.Decide(Conflict{Key: held.Key, Holder: held.Holder, Attempt: 1, FirstAt: now, Now: now})
		if d.Outcome <= Discard {
			err := refusal(task, held, now)
			p.observe(ctx, Refused, delayqueue.Task{}, task, add.Keys, held, nil)
			p.observe(ctx, Ended, delayqueue.Task{}, task, add.Keys, held, err)
			return nil, err
		}
	}
	if d.Outcome == Park {
		add.WaitFor, add.ParkOptions = held.Key, parking.ParkOptions{
			Look: d.Delay, MaxWaiters: d.Limits.Waiters, MaxTotal: d.Limits.Total, MaxAge: d.Limits.Age,
		}
		info, err := p.engine.Add(ctx, task, add, opts...)
		if err == nil {
			t := delayqueue.Task{Queue: info.Queue, ID: info.ID}
			p.observe(ctx, Refused, t, task, add.Keys, held, nil)
			p.observe(ctx, Parked, t, task, add.Keys, held, nil)
			// The key may have been given back before the task was among its waiters.
			_, asked := p.ask(context.WithoutCancel(ctx), []string{held.Key}, interest+d.Delay)
			if asked != nil {
				p.opts.Logger.WarnContext(ctx, "whether a key is still held is not known; the task's timer will bring it back", "error", withoutKeys(asked))
			}
		}
		if !errors.Is(err, parking.ErrForeign) {
			return info, err
		}
		add.WaitFor = ""
	}
	info, err := p.engine.Add(ctx, task, add, opts...)
	if errors.Is(err, parking.ErrForeign) {
		add.AtOnce = false
		return p.engine.Add(ctx, task, add, opts...)
	}
	return info, err
}

// observe tells the observer of an event of a wait that begins with an enqueue.
func (p *Producer) observe(ctx context.Context, kind EventKind, t delayqueue.Task, task *asynq.Task, keys []string, held *locking.HeldError, err error) {
	tell(ctx, p.opts.Observer, p.opts.Logger, Event{Kind: kind, Task: t, Type: task.Type(), Keys: keys, Key: held.Key, Holder: known(held.Holder), Err: err})
}

// refusal returns the error of a task that is not enqueued.
func refusal(task *asynq.Task, held *locking.HeldError, now time.Time) *ConflictError {
	e := &ConflictError{
		Type: task.Type(), Key: held.Key, Holder: held.Holder, Outcome: NotEnqueued, Conflicts: 1, RetryAfter: max(held.Holder.Remaining, 0),
	}
	if !held.Holder.Since.IsZero() {
		e.Held = max(now.Sub(held.Holder.Since), 0)
	}
	return e
}
