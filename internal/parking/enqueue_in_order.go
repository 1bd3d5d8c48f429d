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

// ErrNotInSequence reports that a task was enqueued and has no place in line, because Redis did not answer any more. It
// joins the line when it runs; until then those that are enqueued after it may pass it. Do not enqueue it again.
var ErrNotInSequence = errors.New("delayqueue: the task is enqueued, but joins the sequence of its key only when it runs: " +
	"do not enqueue it again")

// afterCancel is how long a task is still given its place when the caller has cancelled: it is enqueued already.
const afterCancel = time.Second

// EnqueueInOrder enqueues a task at the end of the line of key, with asynq's options, and returns what asynq says of it: of
// two calls of which one ends before the other begins, the first one's task stands first, also when they are for
// different queues. The key must be the one under which the task's handler takes its [Engine.Join], and the handler
// must call [Engine.Remove]: the entry of a task whose handler does neither stays until somebody behind it takes a
// Turn, or for 48 h after the last arrival. Payload and headers may be nil.
//
// It makes two calls to Redis, three on a Cluster: the task is enqueued first, and then takes its place. One that runs
// in between has taken it by its own Turn. If it has ended by then, its entry is taken out again; should that fail,
// because Redis does not answer or because asynq takes longer than a tenth of a second to note that it has ended, the
// entry stays until the next in line meets it. One that has failed in between may keep its place until it is retried.
// Close waits for the looks at such tasks.
//
// A task that is due later (asynq.ProcessIn, asynq.ProcessAt) or that joins a group is enqueued too, but joins the line
// when it runs.
//
// The task is enqueued once, also when the connection breaks before the answer is there, unless it is done by the time
// that it is sent again. When the error matches [ErrNotInSequence], the task is enqueued and the TaskInfo is there.
// Other errors are asynq's own, wrapped: after asynq.ErrTaskIDConflict the task that has the ID is in line, if it was
// enqueued for this line and waits; asynq.ErrDuplicateTask leaves the line as it was. After any other the task may be
// enqueued or not, as with asynq's own Client; if it is, it joins the line when it runs.
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

// named returns the task that asynq makes with these options, and the options with its ID, which is known before it is
// enqueued. asynq checks the options.
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
		return nil, errors.Join(err, e.placeOther(ctx, t, key))
	}
	if err != nil {
		return nil, err
	}
	if info.State == asynq.TaskStateScheduled || info.State == asynq.TaskStateAggregating {
		return info, nil
	}
	if err := e.takePlace(ctx, t, key); err != nil {
		return info, fmt.Errorf("%w: %w", ErrNotInSequence, err)
	}
	return info, nil
}

// placeOther sees to it that a task which has the ID of one that was to be enqueued stands in line, if it was to stand
// there too: its producer may have crashed, or have lost its connection, before it did.
func (e *Engine) placeOther(ctx context.Context, t Task, key string) error {
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
		err = e.takePlace(ctx, t, key)
	}
	if err != nil {
		err = fmt.Errorf("the task that has the ID may not be in the sequence: %w", err)
	}
	return err
}

// takePlace puts a task in line that is enqueued, and takes its entry out again if it has ended before.
func (e *Engine) takePlace(ctx context.Context, t Task, key string) error {
	ctx, cancel := outlasting(ctx, afterCancel)
	defer cancel()
	at, state, err := e.joinAndLook(ctx, t, key)
	if err != nil {
		return err
	}
	switch ended := !(standing{state: state}).live(); {
	case ended, at.made && !e.steps && (state == "retry" || state == "scheduled"):
		// It has ended, or has failed and left the line. On a Cluster it may have failed after it has got its place,
		// and then may keep it.
		e.withdraw(ctx, t, key)
	case at.made && state == "active":
		// It has yet to ask its turn, or has just left the line and is about to end.
		e.watch(t, key)
	}
	return nil
}

// joinAndLook gives a task its place and returns its state at that moment, which is empty when there is no such task.
// On a Cluster the look comes after it, and when it has failed the state is unknown.
func (e *Engine) joinAndLook(ctx context.Context, t Task, key string) (at entry, state string, err error) {
	if e.steps {
		if at, err = e.join(ctx, t, key, JoinOptions{}, 0, nil); err != nil {
			return entry{}, "", err
		}
		return at, e.stateOf(ctx, t, e.client.HGet(ctx, t.Hash(), "state")), nil
	}
	// In one script: a task that failed between the two would be taken for one that had failed before.
	at, err = e.joined(ctx, t, sequenceScript.Run(ctx, e.client,
		[]string{SequenceKey(key), WaitersKey(key), t.Hash()}, joinArgs(t, JoinOptions{}, 0, nil)...))
	return at, at.state, err
}

// stateOf reads the state of a task that was put in line.
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

// watch looks in the background whether an active task ends, for a tenth of a second: by then it has asked its turn, or
// it was at its end.
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
			if !(standing{state: state}).live() {
				e.withdraw(e.closing, t, key)
			}
			if state != "active" { // one that has failed may keep its place
				return
			}
		}
	})
}

// withdraw takes the entry of a task that has ended out of line, and wakes who may have parked behind it.
func (e *Engine) withdraw(ctx context.Context, t Task, key string) {
	left, err := e.Remove(ctx, t, key)
	// the first in line, who need not be the one that was refused first
	if err == nil && left.Parked > 0 && len(left.Next) > 0 {
		_, err = e.WakeTask(ctx, key, left.Next[0])
	}
	if err != nil {
		e.log.WarnContext(ctx, "a task that has ended may stay in its sequence until another task finds it", "task", t.String(),
			"error", err)
	}
}

// outlasting returns a context that ends some time after ctx has.
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

// sequenceHeader says that Enqueue has put a task in line: "encoded key" "task as an entry of the line". It counts only
// for that task and that key: a handler may hand its headers on to tasks that it enqueues.
const sequenceHeader = "Railtoken-Sequence"

func headerOf(t Task, key string) string { return keys.Encode(key) + " " + t.Entry() }

// EnqueuedFor reports whether [Engine.EnqueueInOrder] has put a task in the line of key, by its headers. It may have left the
// line since.
func EnqueuedFor(t Task, key string, headers map[string]string) bool {
	return headers[sequenceHeader] == headerOf(t, key)
}
