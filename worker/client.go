package worker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Client enqueues tasks. It is safe for use by many goroutines at the same time.
type Client struct {
	conn    redis.UniversalClient
	tasks   *asynq.Client
	inspect *asynq.Inspector
}

// NewClient returns a client for producers, on the Redis where asynq keeps its tasks. It connects when it is used.
func NewClient(at Redis) (*Client, error) {
	if err := at.validate("REDIS"); err != nil {
		return nil, err
	}
	conn := at.client()
	return &Client{
		conn: conn, tasks: asynq.NewClientFromRedisClient(conn), inspect: asynq.NewInspectorFromRedisClient(conn),
	}, nil
}

// Close closes the connections.
func (c *Client) Close() error { return c.conn.Close() }

// Enqueue adds a task with the payload in JSON, with asynq's options, and returns what asynq says of it. Options that asynq
// would cut down to whole seconds without a word are rounded up to them.
//
// A task without an asynq.TaskID option is enqueued once, also when the connection breaks before the answer is there.
func (c *Client) Enqueue(ctx context.Context, taskType string, payload any, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	if taskType == "" {
		return nil, errors.New("worker: enqueue: the type of the task is empty")
	}
	data, err := json.Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("worker: enqueue a task of type %q: its payload has no JSON: %w", taskType, err)
	}
	return c.EnqueueTask(ctx, asynq.NewTask(taskType, data), opts...)
}

// EnqueueTask adds a task that was made by hand, for example with headers: see [Client.Enqueue].
func (c *Client) EnqueueTask(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	queue, id, own := "default", "", false
	whole := make([]asynq.Option, 0, len(opts)+1)
	for _, opt := range opts {
		switch v := opt.Value().(type) {
		case time.Duration:
			opt = wholeSeconds(opt, v)
		case string:
			switch opt.Type() {
			case asynq.QueueOpt:
				queue = v
			case asynq.TaskIDOpt:
				id = v
			default:
			}
		}
		whole = append(whole, opt)
	}
	if id == "" {
		id, own = rand.Text(), true
		whole = append(whole, asynq.TaskID(id))
	}
	info, err := c.tasks.EnqueueContext(ctx, task, whole...)
	if own && errors.Is(err, asynq.ErrTaskIDConflict) {
		// Nobody else can have this ID: the first call came through and its answer was lost, so it was sent again.
		info, err = c.inspect.GetTaskInfo(queue, id)
		if errors.Is(err, asynq.ErrTaskNotFound) { // it is done already
			return &asynq.TaskInfo{ID: id, Queue: queue, Type: task.Type(), Payload: task.Payload(), Headers: task.Headers()}, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("worker: enqueue a task of type %q: %w", task.Type(), err)
	}
	return info, nil
}

// wholeSeconds rounds a duration option up where asynq keeps whole seconds: a timeout of half a second would be taken for none.
func wholeSeconds(opt asynq.Option, d time.Duration) asynq.Option {
	if d <= 0 {
		return opt
	}
	d = time.Duration(math.Ceil(d.Seconds())) * time.Second
	switch opt.Type() {
	case asynq.TimeoutOpt:
		return asynq.Timeout(d)
	case asynq.RetentionOpt:
		return asynq.Retention(d)
	default:
		return opt
	}
}
