package line

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/lanes"
)

// LanesRecord is the Redis key with the number of lanes of the tasks. Whoever has lanes first writes it.
const LanesRecord = "railtoken:lanes"

// ErrLanes reports that other processes have another number of lanes: the locks of the two would not exclude each other.
var ErrLanes = errors.New("the tasks on this Redis Cluster have another number of lanes")

// agreement is whether the number of lanes is known to be that of the other processes.
type agreement struct{ reached atomic.Bool }

// AgreeOnLanes returns an error that matches [ErrLanes] if other processes have another number of lanes. It makes one or two
// calls on a Redis Cluster, and none once it has returned nil.
func (e *Engine) AgreeOnLanes(ctx context.Context) error {
	if _, cluster := e.client.(*redis.ClusterClient); !cluster || e.agreed.reached.Load() {
		return nil
	}
	n := e.names.Count()
	if n > 0 {
		err := e.client.SetArgs(ctx, LanesRecord, n, redis.SetArgs{Mode: "NX"}).Err()
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("compare the number of lanes: %w", err)
		}
	}
	recorded, err := e.client.Get(ctx, LanesRecord).Result()
	switch {
	case errors.Is(err, redis.Nil):
		recorded = "0"
	case err != nil:
		return fmt.Errorf("compare the number of lanes: %w", err)
	}
	if recorded != fmt.Sprint(n) {
		return fmt.Errorf("%w: Lanes is %d here, and the key %s has %s: give all processes Lanes = %s (RAILTOKEN_LANES); to change the "+
			"number, stop all of them, let no task be left in a lane, and delete the key", ErrLanes, n, LanesRecord, recorded, recorded)
	}
	e.agreed.reached.Store(true)
	return nil
}

// send has asynq enqueue a task, in the lane of its keys if there are lanes. asynq alone knows the options of the task, and
// with them its queue: if it is not among opts, asynq tries twice.
func (e *Engine) send(ctx context.Context, a *enqueuing, task *asynq.Task, opts []asynq.Option) (*asynq.TaskInfo, error) {
	if err := e.AgreeOnLanes(ctx); err != nil {
		return nil, fmt.Errorf("delayqueue: %w", err)
	}
	if e.names.Count() > 0 && len(a.Keys) > 0 {
		for _, opt := range opts {
			if queue, named := opt.Value().(string); named && opt.Type() == asynq.QueueOpt {
				a.into = e.inLane(queue, a.Keys)
			}
		}
	}
	for tries := 0; ; tries++ {
		with := opts
		if a.into != "" {
			with = slices.Concat(opts, []asynq.Option{asynq.Queue(a.into)})
		}
		a.into = ""
		info, err := e.tasks.EnqueueContext(context.WithValue(ctx, enqueuingKey{}, a), task, with...)
		if a.into == "" || tries > 1 {
			return info, err
		}
	}
}

// inLane returns the queue in which a task with these keys is.
func (e *Engine) inLane(queue string, keys []string) string {
	return e.names.Queue(lanes.Base(queue), e.names.Home(keys))
}

// reroutes notes that a task goes to another queue than asynq's options say: that of its lane. A group is one of the queue
// without lanes, as a task without known keys.
func (e *Engine) reroutes(a *enqueuing, sent broker.Enqueuing) (away bool, err error) {
	if e.names.Count() == 0 || len(a.Keys) == 0 {
		return false, nil
	}
	if sent.Script == "" {
		return false, ErrForeign
	}
	base := lanes.Base(sent.Queue)
	if err := e.names.Check(base); err != nil {
		return false, fmt.Errorf("delayqueue: %w", err)
	}
	into := e.inLane(base, a.Keys)
	if strings.HasPrefix(sent.Script, "addToGroup") {
		into = base
	}
	if into != sent.Queue {
		a.into = into
	}
	return a.into != "", nil
}

// errRerouted ends asynq's attempt to enqueue a task in another queue.
var errRerouted = errors.New("delayqueue: the task belongs into another queue")
