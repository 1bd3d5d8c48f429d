package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/tasklock"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// ProducerOptions configures [NewProducer]. The zero value has every default: the locks are on the Redis of the tasks.
type ProducerOptions struct {
	// Keys finds the keys of the tasks of some types. Those of others are given with the option [Keys], or are not
	// known.
	Keys map[string]middleware.KeyFunc
	// Locker and LockNames are those of [Options], for locks that are elsewhere.
	Locker    locking.Locker
	LockNames func(key string) (lock, interest string)
	// MaxKeySize and MaxKeys are those of [Options].
	MaxKeySize, MaxKeys int
	// Observer is told of the waits that begin with an enqueue, and of the tasks that WhenHeld refuses; nil disables it.
	Observer middleware.Observer
	// Logger receives what went wrong in the background; silent when nil.
	Logger *slog.Logger
}

// Producer enqueues tasks with their keys, in a process with or without asynq servers. It is safe for use by many
// goroutines at the same time. Close it when it is used no more.
type Producer struct {
	opts    ProducerOptions
	queue   *delayqueue.Queue
	closers []io.Closer // what NewProducer has made
}

// NewProducer returns a Producer on the Redis of the tasks. The client stays the caller's: close it after the Producer.
func NewProducer(client redis.UniversalClient, opts ProducerOptions) (*Producer, error) {
	if client == nil {
		return nil, errors.New("attach: the client is nil: give the go-redis client of the asynq servers")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	queue, err := delayqueue.New(client, delayqueue.Options{Logger: opts.Logger})
	if err != nil {
		return nil, err
	}
	p := &Producer{opts, queue, []io.Closer{queue}}
	if opts.Locker == nil {
		single, err := locking.NewSingle(client, locking.SingleOptions{})
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.closers, p.opts.Locker = append(p.closers, single), single
		if _, oneNode := client.(*redis.Client); oneNode {
			p.opts.LockNames = single.RedisKeys
		}
	}
	return p, nil
}

// Producer returns a Producer with the locks and the connections of a, for handlers that enqueue tasks: it is closed
// with a. keys is that of [ProducerOptions].
func (a *Attached) Producer(keys map[string]middleware.KeyFunc) *Producer {
	return &Producer{queue: a.queue, opts: ProducerOptions{
		Keys: keys, Locker: a.locker, LockNames: a.opts.LockNames, MaxKeySize: a.opts.MaxKeySize, MaxKeys: a.opts.MaxKeys,
		Observer: a.opts.Observer, Logger: a.opts.Logger,
	}}
}

// EnqueueInOrder enqueues a task at the end of the sequence of a business key: with [middleware.FIFO] or
// [middleware.StrictFIFO] the tasks of a key run in the order of these calls, whichever queues they are in. When the
// error matches [delayqueue.ErrNotInSequence] the task is enqueued, but joins the sequence only when it runs: do not
// enqueue it again. Tasks that are due later, or were enqueued otherwise, join the sequence when they first run.
//
// The key must be the one key that the handler finds in the task, and the handler must have one of these orders. It
// returns a [middleware.KeyError] when the key is not usable, and an error for [Keys] and [WhenHeld], which have no
// meaning here; nothing is enqueued then.
func (p *Producer) EnqueueInOrder(ctx context.Context, key string, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
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
	return p.engine().Enqueue(ctx, key, task.Type(), task.Payload(), task.Headers(), opts...)
}

// limits returns the limits of the keys of a task.
func (p *Producer) limits() tasklock.Limits {
	return tasklock.Limits{Keys: p.opts.MaxKeys, Size: p.opts.MaxKeySize}
}

// Queue returns the waiting tasks, to list and reorder them. It is closed with the Producer.
func (p *Producer) Queue() *delayqueue.Queue { return p.queue }

// Close ends what NewProducer has made.
func (p *Producer) Close() error {
	var errs []error
	for _, c := range p.closers {
		errs = append(errs, c.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("attach: close the producer: %w", err)
	}
	return nil
}
