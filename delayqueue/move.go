package delayqueue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Suffix is added to a queue's name for its delay queue.
const Suffix = ":delayed"

// DelayQueue returns the name of a queue's delay queue: a delay queue's own is the same one.
func DelayQueue(queue string) string { return strings.TrimSuffix(queue, Suffix) + Suffix }

// Headers of a moved task. They belong to this package; a task's own headers are carried along beside them. They count only on
// the task that they were made for: a handler may hand its headers on to tasks that it enqueues.
const (
	headerTask      = "Railtoken-Task" // the copy itself, as a registry entry
	headerOrigin    = "Railtoken-Origin"
	headerMove      = "Railtoken-Move"
	headerCopy      = "Railtoken-Copy"
	headerRetries   = "Railtoken-Retries"
	headerConflicts = "Railtoken-Conflicts"
	headerFirst     = "Railtoken-First-Conflict"
)

// Moved is what a task that was moved to a delay queue knows of its original.
type Moved struct {
	// Origin is the task that it was.
	Origin Task
	// Retries is how many retries it had left, each of which a failing handler uses up.
	Retries int
	// Before is the conflicts that it met in its own queue.
	Before Conflict

	move, copy string
}

// MovedFrom returns what a task with these headers was before it was moved; ok is false when it was not.
func MovedFrom(t Task, headers map[string]string) (m Moved, ok bool) {
	m.move, m.copy = headers[headerMove], headers[headerCopy]
	retries, err1 := strconv.Atoi(headers[headerRetries])
	origin, err2 := parseMember(headers[headerOrigin])
	if m.move == "" || m.copy == "" || err1 != nil || err2 != nil || retries < 0 || headers[headerTask] != t.member() {
		return Moved{}, false
	}
	m.Origin, m.Retries = origin, retries
	if n, err := strconv.Atoi(headers[headerConflicts]); err == nil && n > 0 {
		m.Before.Count = n
	}
	if us, err := strconv.ParseInt(headers[headerFirst], 10, 64); err == nil && us > 0 {
		m.Before.First = time.UnixMicro(us)
	}
	return m, true
}

// Exhausted reports whether a moved task has used up its retries: this run was its last, or when it has just begun, one
// too many. attempt is its retry count.
func (m Moved) Exhausted(attempt int) (last, over bool) {
	return attempt >= m.Retries, attempt > m.Retries
}

// Move copies a task to the queue named to, where it is due after delay. The copy has the same type, payload, headers, timeout,
// deadline and retention; the same ID, unless another task has it there; and one retry more than the task has left, so that a
// conflict never meets its last attempt. retries is how many it has left. A second Move of the same task finds the copy and
// does nothing.
//
// The handler must return an error that matches asynq.RevokeTask after it, which deletes the original. Until then both exist;
// [Queue.Claim] sees to it that one of them runs. A uniqueness lock ends with the original. The error matches [ErrGone] when
// the task has been deleted, or a copy of it has run.
func (q *Queue) Move(ctx context.Context, from Task, task *asynq.Task, to string, delay time.Duration, retries int) (Task, error) {
	copied, err := q.move(ctx, from, task, to, delay, retries)
	if err != nil && !errors.Is(err, ErrGone) {
		err = fmt.Errorf("delayqueue: move task %s to queue %q: %w", from, to, err)
	}
	return copied, err
}

func (q *Queue) move(ctx context.Context, from Task, task *asynq.Task, to string, delay time.Duration, retries int) (Task, error) {
	earlier, ok := MovedFrom(from, task.Headers())
	if !ok {
		earlier.copy = original
	}
	name, conflicts, first, err := q.name(ctx, from, earlier)
	if err != nil {
		return Task{}, err
	}
	info, err := q.info(ctx, from)
	if err != nil {
		return Task{}, err
	}
	headers := maps.Clone(task.Headers())
	if headers == nil {
		headers = map[string]string{}
	}
	headers[headerOrigin] = from.member()
	headers[headerMove] = name
	headers[headerRetries] = strconv.Itoa(retries)
	headers[headerConflicts], headers[headerFirst] = conflicts, first
	opts := []asynq.Option{
		asynq.Queue(to), asynq.ProcessIn(WholeSeconds(time.Now(), delay)), asynq.MaxRetry(retries + 1),
	}
	if info.Timeout > 0 {
		opts = append(opts, asynq.Timeout(info.Timeout))
	}
	if !info.Deadline.IsZero() {
		opts = append(opts, asynq.Deadline(info.Deadline))
	}
	if info.Retention > 0 {
		opts = append(opts, asynq.Retention(info.Retention))
	}
	// Another task may have the ID there: one that was enqueued there with it, or an older one that is archived or retained.
	for _, id := range []string{from.ID, from.ID + ":" + name} {
		copied := Task{Queue: to, ID: id}
		headers[headerTask], headers[headerCopy] = copied.member(), rand.Text()
		moved := asynq.NewTaskWithHeaders(task.Type(), task.Payload(), headers)
		_, err := q.tasks.EnqueueContext(ctx, moved, append(opts, asynq.TaskID(id))...)
		if err == nil {
			return copied, nil
		}
		if !errors.Is(err, asynq.ErrTaskIDConflict) {
			return Task{}, err
		}
		there, err := q.info(ctx, copied)
		if err != nil && !errors.Is(err, ErrGone) {
			return Task{}, err
		}
		if err == nil && there.Headers[headerMove] == name {
			return copied, nil
		}
	}
	return Task{}, errors.New("the IDs for its copy are taken by other tasks")
}

// name names the move of a task. It also returns the task's conflicts and when the first was (us).
func (q *Queue) name(ctx context.Context, from Task, earlier Moved) (name, conflicts, first string, err error) {
	if q.steps {
		return q.nameInSteps(ctx, from, earlier)
	}
	reply, err := nameScript.Run(ctx, q.client, []string{from.hash()}, rand.Text(), earlier.move, earlier.copy).StringSlice()
	if errors.Is(err, redis.Nil) {
		err = ErrGone
	}
	if err != nil {
		return "", "", "", err
	}
	if len(reply) != 3 {
		return "", "", "", unexpected(reply)
	}
	return reply[0], reply[1], reply[2], nil
}

// info returns what asynq knows of a task. asynq lists its queues in a set that a producer writes to once; when that was lost
// since, the queue is listed anew.
func (q *Queue) info(ctx context.Context, t Task) (*asynq.TaskInfo, error) {
	info, err := q.inspect.GetTaskInfo(t.Queue, t.ID)
	if errors.Is(err, asynq.ErrQueueNotFound) {
		if err := q.client.SAdd(ctx, "asynq:queues", t.Queue).Err(); err != nil {
			return nil, err
		}
		info, err = q.inspect.GetTaskInfo(t.Queue, t.ID)
	}
	if errors.Is(err, asynq.ErrTaskNotFound) {
		return nil, ErrGone
	}
	return info, err
}
