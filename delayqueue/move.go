package delayqueue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/keys"
)

// Suffix is added to a queue's name for its delay queue.
const Suffix = ":delayed"

// Headers of a moved task. They belong to this package; a task's own headers are carried along beside them.
const (
	headerOrigin    = "Railtoken-Origin"
	headerRetries   = "Railtoken-Retries"
	headerMove      = "Railtoken-Move"
	headerConflicts = "Railtoken-Conflicts"
	headerFirst     = "Railtoken-First-Conflict"
)

// tombstoneTTL is how long it is remembered that a moved task has run. It must outlast every way in which asynq may bring
// the original back: recovery after a crash (2 minutes) and a shutdown that the whole fleet spends stopped.
const tombstoneTTL = 24 * time.Hour

// Moved is what a task that was moved to a delay queue knows of its original.
type Moved struct {
	// Origin is the task that it was.
	Origin Task
	// Retries is how many retries it had left, each of which a failing handler uses up.
	Retries int
	// Before is the conflicts that it met in its own queue.
	Before Conflict

	move string
}

// MovedFrom returns what a task with these headers was before it was moved; ok is false when it was not.
func MovedFrom(t Task, headers map[string]string) (m Moved, ok bool) {
	move, origin := headers[headerMove], headers[headerOrigin]
	retries, err := strconv.Atoi(headers[headerRetries])
	if move == "" || origin == "" || err != nil || retries < 0 {
		return Moved{}, false
	}
	m = Moved{Origin: Task{Queue: origin, ID: t.ID}, Retries: retries, move: move}
	m.Before.Count, _ = strconv.Atoi(headers[headerConflicts])
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

// Move copies a task to the queue named to, where it is due after delay. The copy has the same ID, so that a second Move
// of the same task finds it there and does nothing; the same type, payload, headers, timeout, deadline and retention; and
// one retry more than the task has left, so that a conflict never meets its last attempt. retries is how many it has left.
//
// The handler must return an error that matches asynq.RevokeTask after it, which deletes the original. Until then
// both exist; [Queue.Claim] sees to it that one of them runs. A uniqueness lock ends with the original.
func (q *Queue) Move(ctx context.Context, from Task, task *asynq.Task, to string, delay time.Duration, retries int, before Conflict) (Task, error) {
	info, err := q.inspect.GetTaskInfo(from.Queue, from.ID)
	if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
		return Task{}, ErrGone
	}
	if err != nil {
		return Task{}, fmt.Errorf("delayqueue: move task %s: %w", from, err)
	}
	headers := maps.Clone(task.Headers())
	if headers == nil {
		headers = map[string]string{}
	}
	headers[headerOrigin] = from.Queue
	headers[headerRetries] = strconv.Itoa(retries)
	headers[headerMove] = rand.Text()
	headers[headerConflicts] = strconv.Itoa(before.Count)
	if !before.First.IsZero() {
		headers[headerFirst] = strconv.FormatInt(before.First.UnixMicro(), 10)
	}
	opts := []asynq.Option{
		asynq.TaskID(from.ID), asynq.Queue(to), asynq.ProcessIn(WholeSeconds(time.Now(), delay)), asynq.MaxRetry(retries + 1),
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
	_, err = q.tasks.EnqueueContext(ctx, asynq.NewTaskWithHeaders(task.Type(), task.Payload(), headers), opts...)
	if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
		return Task{}, fmt.Errorf("delayqueue: move task %s to queue %q: %w", from, to, err)
	}
	return Task{Queue: to, ID: from.ID}, nil
}

// Claim decides whether a task that has been moved, or may have been, is the one that runs: call it with the task's locks
// held, before its handler. It returns false when another copy has run, is running or will run; the handler must then
// return an error that matches asynq.RevokeTask. to is the queue that the task may have been moved to.
func (q *Queue) Claim(ctx context.Context, t Task, headers map[string]string, to string) (bool, error) {
	if m, ok := MovedFrom(t, headers); ok {
		n, err := claimScript.Run(ctx, q.client, []string{tombstone(m.Origin)}, m.move, tombstoneTTL.Milliseconds()).Int()
		if err != nil {
			return false, fmt.Errorf("delayqueue: claim task %s: %w", t, err)
		}
		return n == 1, nil
	}
	// In this order: a copy leaves its tombstone before it can be gone.
	for _, key := range []string{Task{Queue: to, ID: t.ID}.hash(), tombstone(t)} {
		n, err := q.client.Exists(ctx, key).Result()
		if err != nil {
			return false, fmt.Errorf("delayqueue: claim task %s: %w", t, err)
		}
		if n > 0 {
			return false, nil
		}
	}
	return true, nil
}

// tombstone returns the name of the key that says that a moved task has run.
func tombstone(origin Task) string { return "railtoken:moved:{" + keys.Encode(origin.member()) + "}" }

// WholeSeconds returns the delay, at least d, that ends on a whole second. asynq keeps the times of its delayed tasks in whole
// seconds and rounds them down, so that a task may run up to a second before its time.
func WholeSeconds(now time.Time, d time.Duration) time.Duration {
	at := now.Add(d)
	if whole := at.Truncate(time.Second); whole.Before(at) {
		at = whole.Add(time.Second)
	}
	// asynq looks at its own clock a moment later: end just after the second, or that moment would be rounded down to it.
	return at.Sub(now)
}
