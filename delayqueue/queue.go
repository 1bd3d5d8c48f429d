package delayqueue

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/line"
)

// Options configures a [Queue]. The zero value uses the defaults.
type Options struct {
	// Woken, when not nil, is called for each task that this Queue moves to the head of its asynq queue, for example to
	// count wakes. It must return quickly, and be safe for concurrent use. The Queues of package attach use it to let
	// an idle server of their process fetch the task at once; a program with a Queue of its own needs no Woken.
	Woken func(Task)
	// Repaired, when not nil, is called for each task that this Queue wakes in the background, in place of a task that
	// was woken and has not arrived. It must return quickly.
	Repaired func(key string, t Task, lost bool)
	// Logger receives what fails in the background; nil disables it.
	Logger *slog.Logger
	// Lanes is how many lanes the tasks have, on a Redis Cluster, as in attach.Options; 0 for none.
	Lanes int
}

// Queue parks tasks on keys and wakes them. It is safe for concurrent use.
//
// Package middleware parks tasks that are refused a key, and wakes the next waiter when it releases a key. The Locker
// of attach.Attached and worker.Worker, which is for work outside of tasks, also wakes the next waiter at a release. A
// program calls Park and Wake only for conflicts of its own, and Wake also after it has released a key through another
// Locker.
type Queue line.Engine // packages of this module convert it; New makes one

// New returns a Queue on the Redis where asynq keeps its tasks. Such a Queue can inspect and wake tasks. To park them,
// use the Queue of attach.Attached or worker.Worker: Park returns [ErrNotOurs] on any other. Close the Queue before the
// client.
//
// New works with a standalone Redis, a master behind Sentinel and a Redis Cluster, where a call takes several round
// trips instead of one. It refuses a Cluster client that reads from replicas, a ring, whose nodes know nothing of each
// other, and a client that is nil.
func New(client redis.UniversalClient, opts Options) (*Queue, error) {
	inLanes, err := lanes.On(client, opts.Lanes)
	if err != nil {
		return nil, fmt.Errorf("delayqueue: %w", err)
	}
	inside := line.Options{Logger: opts.Logger, Lanes: inLanes}
	if woken := opts.Woken; woken != nil {
		inside.Woken = func(t line.Task) { woken(Task(t)) }
	}
	if repaired := opts.Repaired; repaired != nil {
		inside.Repaired = func(key string, t line.Task, lost bool) { repaired(key, Task(t), lost) }
	}
	engine, err := line.New(client, inside)
	return (*Queue)(engine), err
}

func (q *Queue) engine() *line.Engine { return (*line.Engine)(q) }

// Close waits up to 1 s for wakes under way, and up to 8 s for tasks that are to be parked once Redis can be reached
// again. A task that was not woken runs when its timer ends. A task that could not be parked is logged and recovered by
// asynq, which counts the run as failed, and archives the task if it has no retry left.
func (q *Queue) Close() error { return q.engine().Close() }

// ParkOptions says how a task waits. The zero value uses the defaults.
type ParkOptions struct {
	// Limits bounds the waiting; no limit by default.
	Limits Limits
	// RetryAfter is how long a task that is among the first waiters waits before it runs again if no wake comes; 1 min
	// when zero. The further back a task is, the longer its timer: up to 10 min, or 20 ms for each task before it if that
	// is longer. Limits.Age caps the timer. asynq keeps whole seconds.
	RetryAfter time.Duration
}

// defaultRetryAfter is the default of [ParkOptions].RetryAfter.
const defaultRetryAfter = time.Minute

// Park lets the task of an asynq handler wait for key once the handler has returned, and returns the error that the
// handler must return:
//
//	return queue.Park(ctx, "warehouse", delayqueue.ParkOptions{})
//
// ctx is the context that asynq has given the handler, and the Queue is that of the handler's server: attach.Attached
// and worker.Worker have a method Queue. The handler needs no lock. The task waits in asynq's retry set, where
// [Queue.Wake] finds it, and then runs again from the beginning. It has not failed: it uses up no retry, and
// attach.Waits reports true for the error. If a handler calls Park several times, the last call counts. A task waits
// for one key at a time; if it was woken for another key, the next waiter of that key is woken.
//
// The task is not parked, and the handler decides what happens to it, when the error matches
//
//   - [ErrLimit]: the task has reached one of its limits. A handler that returns this error has failed: the task uses
//     up a retry, and is archived on its last attempt. Wrap asynq.SkipRetry to archive the task at once;
//   - [ErrNotOurs]: the server that runs the task does not use this Queue;
//   - the cause of ctx, which has ended: asynq has given up on the run.
//
// Outside of a handler, Park returns an error that matches none of these.
//
// A Wake before the handler has returned does not find the task, which then runs again after RetryAfter. With an
// unsupported version of asynq the task is retried after RetryAfter, without a wake, and archived on its last attempt.
//
// Park makes no call to Redis, except with limits on Waiters and Total. Parking costs one call when the handler has
// returned, on a Cluster three or four. The number of waiters does not change the cost.
func (q *Queue) Park(ctx context.Context, key string, opts ParkOptions) error {
	if err := opts.Limits.Validate(); err != nil {
		return err
	}
	if err := leasing.CheckDuration("delayqueue: ParkOptions.RetryAfter", opts.RetryAfter, leasing.LeastDuration); err != nil {
		return err
	}
	limits := opts.Limits
	return q.engine().ParkHandler(ctx, key, line.ParkOptions{
		RetryAfter: cmp.Or(opts.RetryAfter, defaultRetryAfter),
		MaxWaiters: limits.Waiters, MaxTotal: limits.Total, MaxAge: limits.Age,
	}, func(t line.Task, met line.Conflict) error {
		limit := limits.Reached(Conflict(met))
		if limit == NoLimit {
			full, err := q.engine().Full(ctx, t, key, limits.Waiters, limits.Total)
			if err != nil {
				return err
			}
			limit = Limit(full)
		}
		if limit != NoLimit {
			return fmt.Errorf("%w: %s of task %s", ErrLimit, limit, t)
		}
		return nil
	})
}

// WakeOptions says which waiters [Queue.Wake] wakes. The zero value wakes the next one.
type WakeOptions struct {
	// Leaver is the task that calls Wake, if it was itself parked on the key before; none when zero. If its own timer
	// has brought it back, it is still among the waiters. Its entry is then removed, so that Woken.Left does not count
	// it. A wake without it works, too: it skips tasks that run.
	Leaver Task
	// Most is the largest number of waiters that are woken; 1 when zero. More than 100 counts as 100.
	Most int
}

// Woken is the result of a wake.
type Woken struct {
	// Tasks are the waiters that were moved to the heads of their asynq queues, in order; empty when none could run.
	Tasks []Task
	// Pending reports that the slot of the next waiter's queue is moving between nodes of a Cluster: the waiter is woken
	// in the background once the slot has moved.
	Pending bool
	// Left is how many tasks still wait for the key.
	Left int
	// Head is the head of the key's sequence if it was not woken, because it is not parked: it has failed and is retried
	// later, runs, or is in its queue. The others wait for it. Zero if it was woken, or if the tasks keep no order.
	Head Task
}

// Wake moves the next waiter of key that can run to the head of its asynq queue. Call it when the conflict of a task
// that was parked by [Queue.Park] is over. A release by package middleware, or by the Locker of attach.Attached and
// worker.Worker, wakes the next waiter by itself.
//
// A waiter that is gone, or whose deadline has passed, is removed. Waiters of a paused queue, or of one that no server
// works on, keep their positions and are skipped; when there are only such waiters, the first is put at the head of its
// queue. Under StrictPriority, those of a queue below a busy one are skipped while another waiter can run. When a woken
// task does not arrive within half a second, the Queue wakes the next one in its place.
//
// If the tasks of key run in order, only the head of their sequence is woken, because only that one may take the key.
//
// Wake makes two calls to Redis, and one more for each hundred waiters that are gone; on a Cluster five to seven. When it
// fails, the waiters' own timers bring them back.
func (q *Queue) Wake(ctx context.Context, key string, opts WakeOptions) (Woken, error) {
	w, err := q.engine().WakeNext(ctx, key, line.WakeOptions{Leaver: line.Task(opts.Leaver), Most: opts.Most})
	woken := Woken{Pending: w.Pending, Left: w.Left, Head: Task(w.Head)}
	for _, t := range w.Tasks {
		woken.Tasks = append(woken.Tasks, Task(t))
	}
	return woken, err
}

// ForwardWake passes on the wake of a task that ends without trying its key, for example because it has no handler: the
// next waiter is woken. It also removes the task from its sequence, unless the task stays there, as one that has failed does
// under StrictFIFO. It does nothing for a task that neither waits nor is in a sequence.
func (q *Queue) ForwardWake(ctx context.Context, t Task, stays bool) error {
	return q.engine().ForwardWake(ctx, line.Task(t), stays)
}

// Inspector returns the part of the Queue that lists waiting tasks and reorders them.
func (q *Queue) Inspector() *Inspector { return &Inspector{q.engine()} }
