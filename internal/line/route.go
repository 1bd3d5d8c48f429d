package line

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/lanes"
)

// send has asynq enqueue a task, in the lane of its keys if there are lanes. asynq alone knows the options of the task, and
// with them its queue: if it is not among opts, asynq tries twice.
func (e *Engine) send(ctx context.Context, a *enqueuing, task *asynq.Task, opts []asynq.Option) (*asynq.TaskInfo, error) {
	if err := e.agreement.Reach(ctx); err != nil {
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
