package line

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// ErrNotInSequence reports that a task was enqueued, but has no position in the sequence of its key, because Redis did
// not answer any more. It joins the sequence when it runs; tasks that are enqueued after it may run first until then.
// Do not enqueue it again.
var ErrNotInSequence = errors.New("delayqueue: the task is enqueued, but joins the sequence of its key " +
	"only when it runs: do not enqueue it again")

// EnqueueInOrder enqueues a task with asynq's options and adds it to the end of the sequence of key. If one call ends
// before another begins, its task comes first in the sequence, even when the two are for different queues. The key must
// be the one with which the task's handler calls [Engine.Join], and the handler must call [Engine.Remove]. Otherwise
// the entry stays until a task behind it calls Join. Payload and headers may be nil.
//
// It makes two calls to Redis, four on a Cluster: the task is enqueued first and then joins the sequence. A task that
// runs in between joins by its own call of Join. On a Cluster an entry may be left over of a task that has ended
// meanwhile; the next task of the sequence finds it.
//
// A task that is due later (asynq.ProcessIn, asynq.ProcessAt) or that joins a group is enqueued too, but joins the
// sequence when it runs.
//
// If the connection breaks before the reply arrives, the task is sent again and still enqueued once, unless it is done
// by then. When the error matches [ErrNotInSequence], the task is enqueued and the TaskInfo is returned. Other errors
// are asynq's own, wrapped. After asynq.ErrTaskIDConflict, the task that has the ID is in the sequence if it was
// enqueued for it and has not ended. After asynq.ErrDuplicateTask, the sequence is unchanged. After any other error the task
// may be enqueued, as with asynq's own Client; if it is, it joins the sequence when it runs.
func (e *Engine) EnqueueInOrder(ctx context.Context, key, taskType string, payload []byte, headers map[string]string,
	opts ...asynq.Option,
) (*asynq.TaskInfo, error) {
	t, opts := named(opts)
	if e.names.Count() > 0 {
		t.Queue = e.inLane(t.Queue, []string{key})
	}
	info, err := e.enqueueInOrder(ctx, key, t, asynq.NewTaskWithHeaders(taskType, payload, headers), opts)
	if err != nil {
		err = fmt.Errorf("delayqueue: enqueue in sequence: %w", err)
	}
	return info, err
}

// named returns the task that asynq makes with these options, and the options with the ID, which must be known before
// the task is enqueued. asynq checks the options.
func named(opts []asynq.Option) (Task, []asynq.Option) {
	t := Task{Queue: "default"}
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
		t.ID = rand.Text()
		opts = append(opts[:len(opts):len(opts)], asynq.TaskID(t.ID))
	}
	return t, opts
}

func (e *Engine) enqueueInOrder(ctx context.Context, key string, t Task, task *asynq.Task,
	opts []asynq.Option,
) (*asynq.TaskInfo, error) {
	info, err := e.Enqueue(ctx, task, EnqueueOptions{Keys: []string{key}, InOrder: key}, opts...)
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		// The producer of the task that has the ID may have crashed, or lost its connection, before the task joined.
		if failed := e.joinEnqueued(ctx, t, key); failed != nil {
			err = errors.Join(err, fmt.Errorf("the task that has the ID may not be in the sequence: %w", failed))
		}
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	if info.State == asynq.TaskStateScheduled || info.State == asynq.TaskStateAggregating {
		return info, nil
	}
	if err := e.joinEnqueued(ctx, t, key); err != nil {
		return info, fmt.Errorf("%w: %w", ErrNotInSequence, err)
	}
	return info, nil
}

// joinEnqueued adds a task to the sequence for which it was enqueued, unless it has run since: then it has joined by
// itself, and may have ended.
func (e *Engine) joinEnqueued(ctx context.Context, t Task, key string) error {
	ctx, cancel := outlasting(ctx, afterCancel)
	defer cancel()
	if e.Together(t.Queue, key) {
		_, err := e.join(ctx, t, key, JoinOptions{}, joined, 0, nil)
		return err
	}
	// The entry comes first, so that no task that is enqueued after this call overtakes it. It may be left over then.
	fields, err := e.client.HGet(ctx, t.Hash(), SequenceField).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if fields != e.names.Sequence(key)+" enqueued" {
		return nil
	}
	if _, err := e.join(ctx, t, key, JoinOptions{}, "1", 0, nil); err != nil {
		return err
	}
	made, err := e.enlist(ctx, t, key, joined)
	if err == nil && made == "-1" {
		e.withdraw(ctx, t, key)
	}
	return err
}

// joined is what a producer calls enlist with: see head.lua.
const joined = "joined"

// withdraw removes a task that has ended from its sequence, and wakes the first task that may have parked behind it.
func (e *Engine) withdraw(ctx context.Context, t Task, key string) {
	left, err := e.Remove(ctx, t, key)
	// WakeTask, because the first of the sequence need not be the waiter that was refused first.
	if err == nil && left.Parked > 0 && len(left.Next) > 0 {
		_, err = e.WakeTask(ctx, key, left.Next[0])
	}
	if err != nil {
		e.log.WarnContext(ctx, "a task that has ended may stay in its sequence until another task finds it",
			"task", t.String(), "error", err)
	}
}
