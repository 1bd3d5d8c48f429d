package delayqueue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/railtoken/railtoken/internal/keys"
)

// headerPlace is the place that Enqueue gave a task: "place (us)" "name of the call" "encoded key" "task as an entry of a line". It counts
// only for that task and that key: a handler may hand its headers on to tasks that it enqueues.
const headerPlace = "Railtoken-Place"

// Enqueue enqueues a task at the end of the line of key, with asynq's options, and returns what asynq says of it: of two calls of which
// one ends before the other begins, the first one's task stands first, also when they are for different queues. The key must be
// the one under which the task's handler takes its [Queue.Turn], and the handler must call [Queue.LeaveLine]: the entry of a task whose
// handler does neither stays until somebody behind it takes a Turn, or for 48 h after the last arrival.
//
// A task that is due later (asynq.ProcessIn, asynq.ProcessAt) or that joins a group is enqueued too, but joins the line when it runs.
//
// A task without an asynq.TaskID option is enqueued once, also when the connection breaks before the answer is there, unless it is done
// by the time that it is sent again. Errors are asynq's own, wrapped: asynq.ErrTaskIDConflict and asynq.ErrDuplicateTask leave the line
// as it was. After any other the task may be enqueued or not, as with asynq's own Client; if it is not, its entry in the
// line is removed by the next task that meets it.
func (q *Queue) Enqueue(ctx context.Context, key string, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	info, err := q.enqueue(ctx, key, task, opts)
	if err != nil {
		return nil, fmt.Errorf("delayqueue: enqueue in line: %w", err)
	}
	return info, nil
}

func (q *Queue) enqueue(ctx context.Context, key string, task *asynq.Task, opts []asynq.Option) (*asynq.TaskInfo, error) {
	p, err := planFor(task, opts)
	if err != nil {
		return nil, err
	}
	if p.info.State != asynq.TaskStatePending {
		info, err := q.tasks.EnqueueContext(ctx, task, append(opts[:len(opts):len(opts)], asynq.TaskID(p.info.ID))...)
		if !refused(err) {
			return info, err
		}
		info, _ = q.sent(ctx, p, "", err, idIsOurs(p, task, opts))
		if info != nil {
			return info, nil
		}
		return nil, err
	}
	t := Task{Queue: p.info.Queue, ID: p.info.ID}
	e, err := q.join(ctx, t, key, TurnOptions{}, 0, nil)
	if err != nil {
		return nil, err
	}
	headers := maps.Clone(task.Headers())
	if headers == nil {
		headers = map[string]string{}
	}
	place := placeHeader(t, key, e.at)
	headers[headerPlace] = place
	p.info.Headers = headers
	info, err := q.tasks.EnqueueContext(ctx, asynq.NewTaskWithHeaders(task.Type(), task.Payload(), headers), p.options()...)
	if !refused(err) {
		return info, err
	}
	info, there := q.sent(ctx, p, place, err, idIsOurs(p, task, opts))
	if info != nil {
		return info, nil
	}
	at, ok := PlaceOf(t, key, there)
	if !e.made || ok && at.Equal(e.at) { // another call with this ID came before or between, and relies on the entry
		return nil, err
	}
	return nil, errors.Join(err, q.takeBack(ctx, t, key))
}

// refused reports whether asynq says that the task is there already.
func refused(err error) bool {
	return errors.Is(err, asynq.ErrTaskIDConflict) || errors.Is(err, asynq.ErrDuplicateTask)
}

// sent looks at the task for which asynq has refused ours. It is ours when the answer to it was lost and go-redis sent it again: then
// sent returns what is known of it, else the headers of the other task, if there is one.
func (q *Queue) sent(ctx context.Context, p plan, place string, refusal error, own bool) (*asynq.TaskInfo, map[string]string) {
	there, err := q.info(ctx, Task{Queue: p.info.Queue, ID: p.info.ID})
	switch {
	case err == nil && (own || place != "" && there.Headers[headerPlace] == place):
		return there, nil
	case err == nil:
		return nil, there.Headers
	case own && errors.Is(refusal, asynq.ErrTaskIDConflict): // it was there a moment ago
		if errors.Is(err, ErrGone) {
			p.info.State = asynq.TaskStateCompleted
		}
		return p.info, nil
	default:
		return nil, nil
	}
}

// takeBack removes an entry for which there is no task, and wakes who may have parked behind it.
func (q *Queue) takeBack(ctx context.Context, t Task, key string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	left, err := q.LeaveLine(ctx, t, key)
	if err == nil && left.Parked > 0 && len(left.Next) > 0 { // the first in line, who need not be the one that was refused first
		_, err = q.WakeTask(ctx, key, left.Next[0])
	}
	return err
}

// placeHeader returns the value of headerPlace. No two calls make the same.
func placeHeader(t Task, key string, at time.Time) string {
	return strings.Join([]string{strconv.FormatInt(at.UnixMicro(), 10), rand.Text(), keys.Encode(key), t.member()}, " ")
}

// PlaceOf returns the place in the line of key that [Queue.Enqueue] gave a task with these headers; ok is false when it gave none. A task
// that was moved to a delay queue has the place of its original.
func PlaceOf(t Task, key string, headers map[string]string) (at time.Time, ok bool) {
	parts := strings.SplitN(headers[headerPlace], " ", 4)
	if len(parts) != 4 || parts[2] != keys.Encode(key) {
		return time.Time{}, false
	}
	if parts[3] != t.member() {
		m, moved := MovedFrom(t, headers)
		if !moved || parts[3] != m.Origin.member() {
			return time.Time{}, false
		}
	}
	us, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || us <= 0 || us >= 1<<53 {
		return time.Time{}, false
	}
	return time.UnixMicro(us), true
}

// plan is what asynq makes of a task and its options.
type plan struct {
	info   *asynq.TaskInfo
	unique time.Duration // of the uniqueness lock of a pending task, zero without
	script []any         // the command that would enqueue it
}

// options returns the options that come to the same.
func (p plan) options() []asynq.Option {
	opts := []asynq.Option{
		asynq.Queue(p.info.Queue), asynq.TaskID(p.info.ID), asynq.MaxRetry(p.info.MaxRetry),
		asynq.Timeout(p.info.Timeout), asynq.Deadline(p.info.Deadline), asynq.Retention(p.info.Retention),
	}
	if p.unique > 0 {
		opts = append(opts, asynq.Unique(p.unique))
	}
	return opts
}

// planFor lets asynq itself say what it makes of a task and its options, by enqueueing it on a client that goes nowhere. Nothing else
// shows the options that a task was made with (asynq.NewTask), of which the queue and the ID must be known in advance.
func planFor(task *asynq.Task, opts []asynq.Option) (p plan, err error) {
	p.info, err = nowhere().EnqueueContext(context.WithValue(context.Background(), planKey{}, &p), task, opts...)
	if err == nil && p.info.State == asynq.TaskStatePending {
		p.unique, err = uniqueTTL(p.script, p.info.ID)
	}
	return p, err
}

// idIsOurs reports whether nobody gave the task its ID: then asynq makes a new one each time.
func idIsOurs(p plan, task *asynq.Task, opts []asynq.Option) bool {
	again, err := planFor(task, opts)
	return err == nil && again.info.ID != p.info.ID
}

type planKey struct{}

// nowhere is a client whose commands all succeed without a connection.
var nowhere = sync.OnceValue(func() *asynq.Client {
	client := redis.NewClient(&redis.Options{
		Addr:                     "nowhere", // never dialled; the option keeps a goroutine from being started, that nobody would end
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	client.AddHook(answering{})
	return asynq.NewClientFromRedisClient(client)
})

// answering answers the commands with which asynq (v0.26) enqueues a task: SADD of the queue and a script.
type answering struct{}

func (answering) DialHook(next redis.DialHook) redis.DialHook { return next }

func (answering) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch cmd := cmd.(type) {
		case *redis.IntCmd:
			cmd.SetVal(1)
		case *redis.Cmd:
			cmd.SetVal(int64(1))
			if p, ok := ctx.Value(planKey{}).(*plan); ok {
				p.script = cmd.Args()
			}
		default:
			err := fmt.Errorf("delayqueue: this version of asynq enqueues a task by %s, which is new", cmd.Name())
			cmd.SetErr(err)
			return err
		}
		return nil
	}
}

func (answering) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error {
		return errors.New("delayqueue: this version of asynq enqueues a task by a pipeline, which is new")
	}
}

// uniqueTTL returns the time of the uniqueness lock from the script by which asynq adds a pending task: EVALSHA sum 2 task pending ...
// without, EVALSHA sum 3 lock task pending id seconds ... with it.
func uniqueTTL(script []any, id string) (time.Duration, error) {
	switch {
	case len(script) > 2 && script[2] == 2:
		return 0, nil
	case len(script) > 7 && script[2] == 3 && script[6] == id:
		if seconds, ok := script[7].(int); ok {
			return time.Duration(seconds) * time.Second, nil
		}
	}
	return 0, errors.New("delayqueue: this version of asynq enqueues a task by another script than v0.26")
}
