package parking

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/keys"
)

// ErrNotInSequence reports that a task was enqueued, but has no position in the sequence of its key, because Redis did
// not answer any more. It joins the sequence when it runs; tasks that are enqueued after it may run first until then.
// Do not enqueue it again.
var ErrNotInSequence = errors.New("delayqueue: the task is enqueued, but joins the sequence of its key " +
	"only when it runs: do not enqueue it again")

// afterCancel is how long an enqueued task may still join its sequence after the caller has cancelled.
const afterCancel = time.Second

// EnqueueInOrder enqueues a task with asynq's options and adds it to the end of the sequence of key. If one call ends
// before another begins, its task comes first in the sequence, even when the two are for different queues. The key must
// be the one with which the task's handler calls [Engine.Join], and the handler must call [Engine.Remove]. Otherwise
// the entry stays until a task behind it calls Join, or for 48 h after the last arrival. Payload and headers may be
// nil.
//
// It makes two calls to Redis, three on a Cluster: the task is enqueued first and then joins the sequence. A task that
// runs in between has joined by its own call of Join. If it has ended by then, its entry is removed again. If that
// fails, because Redis does not answer or asynq takes longer than a tenth of a second to note the end, the entry stays
// until the next task of the sequence finds it. A task that has failed in between may keep its position until it is
// retried. Close waits until such tasks are checked.
//
// A task that is due later (asynq.ProcessIn, asynq.ProcessAt) or that joins a group is enqueued too, but joins the
// sequence when it runs.
//
// If the connection breaks before the reply arrives, the task is sent again and still enqueued once, unless it is done
// by then. When the error matches [ErrNotInSequence], the task is enqueued and the TaskInfo is returned. Other errors
// are asynq's own, wrapped. After asynq.ErrTaskIDConflict, the task that has the ID is in the sequence if it was
// enqueued for it and waits. After asynq.ErrDuplicateTask, the sequence is unchanged. After any other error the task
// may be enqueued, as with asynq's own Client; if it is, it joins the sequence when it runs.
func (e *Engine) EnqueueInOrder(ctx context.Context, key, taskType string, payload []byte, headers map[string]string,
	opts ...asynq.Option,
) (*asynq.TaskInfo, error) {
	t, opts := named(opts)
	headers = maps.Clone(headers)
	if headers == nil {
		headers = map[string]string{}
	}
	headers[sequenceHeader] = headerOf(t, key)
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
	info, err := e.Enqueue(ctx, task, EnqueueOptions{Keys: []string{key}}, opts...)
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil, errors.Join(err, e.joinOther(ctx, t, key))
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

// joinOther adds the task that already has the ID to the sequence, if it was enqueued for it and is pending or active:
// its producer may have crashed, or lost its connection, before the task joined.
func (e *Engine) joinOther(ctx context.Context, t Task, key string) error {
	there, err := e.inspect.GetTaskInfo(t.Queue, t.ID)
	if errors.Is(err, asynq.ErrTaskNotFound) {
		err = ErrGone
	}
	switch {
	case errors.Is(err, ErrGone):
		return nil
	case err != nil:
	case there.Headers[sequenceHeader] != headerOf(t, key):
		return nil
	case there.State == asynq.TaskStatePending, there.State == asynq.TaskStateActive:
		err = e.joinEnqueued(ctx, t, key)
	}
	if err != nil {
		err = fmt.Errorf("the task that has the ID may not be in the sequence: %w", err)
	}
	return err
}

// joinEnqueued adds an enqueued task to the sequence, and removes its entry again if the task has ended before.
func (e *Engine) joinEnqueued(ctx context.Context, t Task, key string) error {
	ctx, cancel := outlasting(ctx, afterCancel)
	defer cancel()
	at, state, err := e.joinAndRead(ctx, t, key)
	if err != nil {
		return err
	}
	switch ended := !(taskState{state: state}).live(); {
	case ended, at.made && !e.steps && (state == "retry" || state == "scheduled"):
		// It has ended, or has failed and left the sequence. On a Cluster it may have failed after it joined, and then
		// may keep its position.
		e.withdraw(ctx, t, key)
	case at.made && state == "active":
		// It has not called Join yet, or has just left the sequence and is about to end.
		e.watch(t, key)
	}
	return nil
}

// joinAndRead adds a task to its sequence and returns its state at that moment; empty when asynq knows no such task. On
// a Cluster the state is read afterwards, and "unknown" when that fails.
func (e *Engine) joinAndRead(ctx context.Context, t Task, key string) (at entry, state string, err error) {
	if e.steps {
		if at, err = e.join(ctx, t, key, JoinOptions{}, 0, nil); err != nil {
			return entry{}, "", err
		}
		return at, e.stateOf(ctx, t, e.client.HGet(ctx, t.Hash(), "state")), nil
	}
	// One script does both: a task that failed between the two would seem to have failed before it joined.
	at, err = e.joined(ctx, t, sequenceJoinScript.Run(ctx, e.client,
		[]string{SequenceKey(key), WaitersKey(key), t.Hash()}, joinArgs(t, JoinOptions{}, 0, nil)...))
	return at, at.state, err
}

// stateOf returns the state of a task that has joined its sequence.
func (e *Engine) stateOf(ctx context.Context, t Task, found *redis.StringCmd) string {
	state, err := found.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		e.log.WarnContext(ctx,
			"a task that joined a sequence may have ended; its entry stays until another task finds it",
			"task", t.String(), "error", err)
		return "unknown"
	}
	return state
}

// watch checks in the background, for a tenth of a second, whether an active task ends: by then it has called Join, or
// it was about to end.
func (e *Engine) watch(t Task, key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.pending.Go(func() {
		for pause := 3 * time.Millisecond; pause < 100*time.Millisecond; pause *= 3 {
			select {
			case <-e.closing.Done():
				return
			case <-time.After(pause):
			}
			state := e.stateOf(e.closing, t, e.client.HGet(e.closing, t.Hash(), "state"))
			if !(taskState{state: state}).live() {
				e.withdraw(e.closing, t, key)
			}
			if state != "active" { // a task that has failed may keep its position
				return
			}
		}
	})
}

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

// outlasting returns a context that ends some time after ctx.
func outlasting(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(by, cancel)
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// sequenceHeader says that EnqueueInOrder has added a task to a sequence: "encoded key" "entry of the task". It counts
// only for that task and that key, because a handler may copy its headers to tasks that it enqueues.
const sequenceHeader = "Railtoken-Sequence"

func headerOf(t Task, key string) string { return keys.Encode(key) + " " + t.Entry() }

// EnqueuedFor reports, by a task's headers, whether [Engine.EnqueueInOrder] has added it to the sequence of key. The
// task may have left the sequence since.
func EnqueuedFor(t Task, key string, headers map[string]string) bool {
	header, ok := headers[sequenceHeader]
	return ok && header == headerOf(t, key)
}
