// Package once enqueues a task in asynq once, also when the connection breaks before the answer is there.
//
// go-redis sends a command again whose answer was lost. asynq then refuses the task that it has: here that is no refusal.
package once

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/hibiken/asynq"
)

// Task is a task that is to be enqueued. Queue and ID are those that asynq will give it.
type Task struct {
	Type    string
	Payload []byte
	Headers map[string]string
	Queue   string
	ID      string

	own  bool // nobody else can have the ID
	opts []asynq.Option
}

// New returns a task with asynq's options. One without an asynq.TaskID gets an ID here, so that it is known when it comes back as a conflict.
// The options are checked by Enqueue, as asynq does it.
func New(taskType string, payload []byte, headers map[string]string, opts ...asynq.Option) Task {
	t := Task{Type: taskType, Payload: payload, Headers: headers, Queue: "default", opts: opts[:len(opts):len(opts)]}
	for _, opt := range opts {
		name, ok := opt.Value().(string)
		switch {
		case !ok:
		case opt.Type() == asynq.QueueOpt:
			t.Queue = name
		case opt.Type() == asynq.TaskIDOpt:
			t.ID = name
		}
	}
	if t.ID == "" {
		t.ID, t.own = rand.Text(), true
		t.opts = append(t.opts, asynq.TaskID(t.ID))
	}
	return t
}

// Enqueue enqueues the task and returns what asynq says of it. One with an ID of its own is enqueued once, unless it is done by the time that
// it is sent again. A caller who has given it an ID is told of a conflict then, as nobody can know whose task it is. Errors are asynq's own.
func (t Task) Enqueue(ctx context.Context, tasks *asynq.Client, inspect *asynq.Inspector) (*asynq.TaskInfo, error) {
	info, err := tasks.EnqueueContext(ctx, asynq.NewTaskWithHeaders(t.Type, t.Payload, t.Headers), t.opts...)
	if err != nil && t.own {
		return t.sentTwice(inspect, err)
	}
	return info, err
}

// sentTwice looks at an error of a task with an ID that nobody else can have. When asynq says that the task is there, the first
// call came through, its answer was lost, and go-redis sent it again.
func (t Task) sentTwice(inspect *asynq.Inspector, err error) (*asynq.TaskInfo, error) {
	conflict := errors.Is(err, asynq.ErrTaskIDConflict)
	if !conflict && !errors.Is(err, asynq.ErrDuplicateTask) { // the uniqueness lock may be that of the first call
		return nil, err
	}
	info, lookup := inspect.GetTaskInfo(t.Queue, t.ID)
	switch {
	case lookup == nil:
		return info, nil
	case conflict: // it is queued, or is done already: the lookup may have failed, the task is safe
		state := asynq.TaskStatePending
		if errors.Is(lookup, asynq.ErrTaskNotFound) || errors.Is(lookup, asynq.ErrQueueNotFound) {
			state = asynq.TaskStateCompleted
		}
		return &asynq.TaskInfo{ID: t.ID, Queue: t.Queue, Type: t.Type, Payload: t.Payload, Headers: t.Headers, State: state}, nil
	default:
		return nil, err
	}
}
