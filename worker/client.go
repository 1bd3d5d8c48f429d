package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
)

// Client enqueues tasks. It is safe for concurrent use.
type Client struct {
	conn     redis.UniversalClient
	theirs   bool // the connection is the caller's
	producer *attach.Producer
}

// NewClient returns a client for producers, on the Redis where asynq keeps its tasks and railtoken its locks. It
// connects at first use.
func NewClient(at Redis) (*Client, error) { return NewClientWith(at, attach.ProducerOptions{}) }

// NewClientWith returns a client with options: for example, one that records the keys of some types of tasks, or whose
// locks are not on the Redis of the tasks. If the keys are recorded, a worker takes the locks of a task with the task
// itself, so that they cost no further calls.
func NewClientWith(at Redis, opts attach.ProducerOptions) (*Client, error) {
	if err := at.validate("REDIS"); err != nil {
		return nil, err
	}
	if opts.Lanes != 0 && at.Lanes != 0 && opts.Lanes != at.Lanes {
		return nil, fmt.Errorf("worker: the options have %d lanes, and the Redis has %d: leave out one of them", opts.Lanes, at.Lanes)
	}
	opts.Lanes = cmp.Or(opts.Lanes, at.Lanes)
	conn, made, err := at.client()
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, theirs: !made}
	producer, err := attach.NewProducer(c.conn, opts)
	if err != nil {
		return nil, errors.Join(err, c.closeConn())
	}
	c.producer = producer
	return c, nil
}

// Queue returns the queue of waiting tasks, which lists, reorders and drops them, and runs archived tasks again. It is
// closed with the client.
func (c *Client) Queue() *delayqueue.Queue { return c.producer.Queue() }

// Close closes the connections, except those of Redis.Client.
func (c *Client) Close() error { return errors.Join(c.producer.Close(), c.closeConn()) }

func (c *Client) closeConn() error {
	if c.theirs {
		return nil
	}
	return c.conn.Close()
}

// Enqueue adds a task with the payload as JSON. opts may be asynq's options and those of package attach: [attach.Keys],
// and [attach.WhenHeld], which needs Keys or a Client of [NewClientWith] that finds the keys. Durations and times are
// rounded up to whole seconds, as [attach.Producer] does.
//
// A task is enqueued only once, even if the connection breaks before the reply arrives and the command is sent again,
// unless the task has completed by then. With WhenHeld the error may be a [middleware.ConflictError]; nothing is
// enqueued then.
func (c *Client) Enqueue(
	ctx context.Context, taskType string, payload any, opts ...asynq.Option,
) (*asynq.TaskInfo, error) {
	data, err := json.Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("worker: enqueue a task of type %q: its payload cannot be encoded as JSON: %w", taskType, err)
	}
	return c.EnqueueRaw(ctx, taskType, data, nil, opts...)
}

// EnqueueInOrder adds a task at the end of the sequence of a business key: with [middleware.FIFO] or
// [middleware.StrictFIFO], the tasks of a key run in the order of these calls, whichever queues they are in. Tasks that
// were enqueued in another way, or are due later, join the sequence when they first run. Otherwise EnqueueInOrder is
// like [Client.Enqueue], but refuses [attach.Keys] and [attach.WhenHeld].
//
// The key must be the only key that the handler finds in the task, and the handler must use one of these orders. With
// another order the tasks run as usual, but stay in the sequence until other tasks notice that they are gone.
//
// If the key is empty or too long, the error is a [middleware.KeyError], and nothing is enqueued. If the error matches
// [delayqueue.ErrNotInSequence], the task is enqueued, and its TaskInfo is returned, but it joins
// the sequence only when it runs: do not enqueue it again.
func (c *Client) EnqueueInOrder(
	ctx context.Context, key, taskType string, payload any, opts ...asynq.Option,
) (*asynq.TaskInfo, error) {
	data, err := json.Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("worker: enqueue a task of type %q: its payload cannot be encoded as JSON: %w", taskType, err)
	}
	if taskType == "" {
		return nil, errors.New("worker: enqueue in order: the type of the task is empty")
	}
	info, err := c.producer.EnqueueInOrder(ctx, key, asynq.NewTask(taskType, data), opts...)
	if err != nil {
		err = fmt.Errorf("worker: enqueue a task of type %q: %w", taskType, err)
	}
	return info, err
}

// Wait waits until a task has ended, and returns its result: see [attach.Producer.Wait]. The task needs a Retention.
func (c *Client) Wait(ctx context.Context, info *asynq.TaskInfo) ([]byte, error) {
	return c.producer.Wait(ctx, info)
}

// EnqueueRaw adds a task with a payload in any format and with headers, both of which may be nil: see [Client.Enqueue].
func (c *Client) EnqueueRaw(
	ctx context.Context, taskType string, payload []byte, headers map[string]string, opts ...asynq.Option,
) (*asynq.TaskInfo, error) {
	if taskType == "" {
		return nil, errors.New("worker: enqueue: the type of the task is empty")
	}
	info, err := c.producer.EnqueueContext(ctx, asynq.NewTaskWithHeaders(taskType, payload, headers), opts...)
	if err != nil {
		return nil, fmt.Errorf("worker: enqueue a task of type %q: %w", taskType, err)
	}
	return info, nil
}
