package attach

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// ProducerOptions configures [NewProducer]. With the zero value the locks are on the Redis of the tasks, and all fields
// have defaults.
type ProducerOptions struct {
	// Keys maps a task type to the function that returns the keys of such tasks. For other tasks, the keys come from
	// the option [Keys], or are unknown.
	Keys map[string]middleware.KeyFunc
	// Locker and RedisKeys are as in [Options], for locks that are stored elsewhere.
	Locker    locking.Locker
	RedisKeys func(key string) (lock, notify string)
	// Namespace and NamespaceTasks are as in [Options]; Close closes the connections then.
	Namespace      string
	NamespaceTasks bool
	// Lanes is as in [Options].
	Lanes int
	// MaxKeySize and MaxKeys are as in [Options].
	MaxKeySize, MaxKeys int
	// Observer receives the events of waits that begin at an enqueue, of tasks that WhenHeld refuses, and of payloads that [Latest]
	// replaces; nil disables it.
	Observer middleware.Observer
	// Logger receives failures in the background; slog.Default when nil. slog.New(slog.DiscardHandler) disables it.
	Logger *slog.Logger
}

// Producer enqueues tasks with their keys, in a process with or without asynq servers. Close it when it is no longer
// needed. It is safe for concurrent use.
type Producer struct {
	opts    ProducerOptions
	queue   *delayqueue.Queue
	closers []io.Closer // what NewProducer has created
	conn    io.Closer   // the client, if NewProducer has made it; else nil
}

// NewProducer returns a Producer on the Redis of the tasks. The caller still owns the client: close it after the
// Producer.
func NewProducer(client redis.UniversalClient, opts ProducerOptions) (*Producer, error) {
	if client == nil {
		return nil, errors.New("attach: the client is nil: give the go-redis client of the asynq servers")
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	client, made, err := namespaced(client, opts.Namespace, opts.NamespaceTasks)
	if err != nil {
		return nil, err
	}
	p := &Producer{opts: opts}
	if made {
		p.conn = client
	}
	if err := p.open(client); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// open makes the queue and the locks on a client that has the namespace.
func (p *Producer) open(client redis.UniversalClient) error {
	if err := sameNamespace(client, p.opts.Locker, p.opts.RedisKeys); err != nil {
		return err
	}
	queue, err := delayqueue.New(client, delayqueue.Options{Logger: p.opts.Logger, Lanes: p.opts.Lanes})
	if err != nil {
		return err
	}
	p.queue, p.closers = queue, []io.Closer{queue}
	if p.opts.Locker == nil {
		single, err := locking.NewSingle(client, locking.SingleOptions{Lanes: p.opts.Lanes})
		if err != nil {
			return err
		}
		p.closers, p.opts.Locker = append(p.closers, single), single
		if _, oneNode := client.(*redis.Client); oneNode || p.opts.Lanes > 0 {
			p.opts.RedisKeys = single.RedisKeys
		}
	}
	return nil
}

// Producer returns a Producer that shares the locks and connections of the Attached, for handlers that enqueue tasks.
// It is closed together with the Attached. For keys, see [ProducerOptions].
func (a *Attached) Producer(keys map[string]middleware.KeyFunc) *Producer {
	return &Producer{queue: a.queue, opts: ProducerOptions{
		Keys: keys, Locker: a.locker, RedisKeys: a.opts.RedisKeys, MaxKeySize: a.opts.MaxKeySize, MaxKeys: a.opts.MaxKeys,
		Observer: a.opts.Observer, Logger: a.opts.Logger,
	}}
}

// limits returns the limits on the keys of a task.
func (p *Producer) limits() taskrun.Limits {
	return taskrun.Limits{Keys: p.opts.MaxKeys, Size: p.opts.MaxKeySize}
}

// Queue returns the queue of waiting tasks, which lists and reorders them. It is closed with the Producer.
func (p *Producer) Queue() *delayqueue.Queue { return p.queue }

// Close releases what NewProducer has created.
func (p *Producer) Close() error {
	var errs []error
	for _, c := range p.closers {
		errs = append(errs, c.Close())
	}
	if p.conn != nil {
		errs = append(errs, p.conn.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("attach: close the producer: %w", err)
	}
	return nil
}
