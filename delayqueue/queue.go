package delayqueue

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/parking"
)

// Options configures a [Queue]. The zero value has every default.
type Options struct {
	// Woken, when not nil, is called for each task that this Queue moves to the head of its asynq queue. It must be
	// quick, and safe for concurrent use: it lets an idle worker look for tasks at once instead of after its interval.
	Woken func(Task)
	// Repaired, when not nil, is called for each task that this Queue wakes in the background, in place of a task that
	// was woken and does not come. It must be quick.
	Repaired func(key string, t Task)
	// Logger receives what fails in the background; nil disables it.
	Logger *slog.Logger
}

// Queue parks tasks on keys and wakes them. It is safe for concurrent use.
//
// Package middleware parks the tasks that it refuses a key, and wakes the next waiter when it releases one: a program
// calls Park and Wake only for conflicts of its own. Packages of this module convert a Queue to its engine.
type Queue parking.Engine

// New returns a Queue on the Redis where asynq keeps its tasks. Close the Queue before the client. It works with a
// standalone Redis, a master behind Sentinel and a Redis Cluster, where a call takes several round trips instead of
// one. New refuses a Cluster client that reads from replicas, and a ring, whose nodes know nothing of each other. It
// panics when client is nil.
func New(client redis.UniversalClient, opts Options) (*Queue, error) {
	inside := parking.Options{Logger: opts.Logger}
	if woken := opts.Woken; woken != nil {
		inside.Woken = func(t parking.Task) { woken(Task(t)) }
	}
	if repaired := opts.Repaired; repaired != nil {
		inside.Repaired = func(key string, t parking.Task) { repaired(key, Task(t)) }
	}
	engine, err := parking.New(client, inside)
	return (*Queue)(engine), err
}

func (q *Queue) engine() *parking.Engine { return (*parking.Engine)(q) }

// Close waits up to 1 s for wakes under way, and up to 8 s for tasks that are to be parked once Redis can be reached
// again. A task that was not woken runs when its timer ends. One that could not be parked is logged, and asynq recovers
// it: as failed, and archived when it has no retry left.
func (q *Queue) Close() error { return q.engine().Close() }

// ParkOptions says how a task waits. The zero value is a first attempt without limits.
type ParkOptions struct {
	// Attempt is the task's retry count: its conflicts are counted anew once its handler has run.
	Attempt int
	// Limits holds for Waiters and Total, and Age bounds the timer. For the other limits see [Limits.Reached].
	Limits Limits
	// Look is when the task tries its key again if no wake comes and it is among the first waiters. The further back it
	// stands, the longer its timer, up to 10 min, or 20 ms for each task before it when that is longer.
	Look time.Duration
}

// Parked says where a parked task stands.
type Parked struct {
	Conflict

	// Waiters is how many tasks wait for the key, this one included, and Ahead how many of them stand before it.
	Waiters, Ahead int
	// Timer is when the task tries again if no wake comes.
	Timer time.Duration
}

// Park ends the run of an active task and lets it wait for key in asynq's retry set, where [Queue.Wake] finds it. No
// count of asynq's changes. A task waits for one key at a time; if it was woken for another key, the next waiter of
// that key is woken. A task that finds no room under its limits waits for its timer alone.
//
// The error matches [ErrGone], and nothing has changed, when the task is not active any more.
//
// Park makes one call to Redis, on a Cluster three or four. The number of waiters does not change the cost.
func (q *Queue) Park(ctx context.Context, t Task, key string, opts ParkOptions) (Parked, error) {
	p, err := q.engine().Park(ctx, parking.Task(t), key, parking.ParkOptions{
		Attempt: opts.Attempt, Look: opts.Look,
		MaxWaiters: opts.Limits.Waiters, MaxTotal: opts.Limits.Total, MaxAge: opts.Limits.Age,
	})
	return Parked{Conflict: Conflict(p.Conflict), Waiters: p.Waiters, Ahead: p.Ahead, Timer: p.Timer}, err
}

// WakeOptions says which waiters [Queue.Wake] wakes. The zero value wakes the next one.
type WakeOptions struct {
	// Leaver is the task that releases the key and whose own entry is removed; none when zero.
	Leaver Task
	// Most is how many waiters are woken at most; 1 when zero, at most 100.
	Most int
}

// Woken says what a wake has done.
type Woken struct {
	// Tasks are the waiters that were moved to the heads of their asynq queues, in order; empty when none could run.
	Tasks []Task
	// Pending reports that the next waiter's slot moves between nodes of a Cluster: it is woken in the background once
	// the slot has arrived.
	Pending bool
	// Left is how many tasks still wait for the key.
	Left int
}

// Wake moves the next waiter of key that can run to the head of its asynq queue. Call it when the key is released.
//
// A waiter that is gone, or whose deadline has passed, is removed. Waiters of a paused queue, or of one that no server
// works on, keep their places and are passed over; when there are only such waiters, the first is put at the head of
// its queue. When a woken task does not come within half a second, the Queue wakes the next one in its place.
//
// Wake makes one call to Redis, and one more for each hundred waiters that are gone; on a Cluster four to six. When it
// fails, the waiters' own timers bring them back.
func (q *Queue) Wake(ctx context.Context, key string, opts WakeOptions) (Woken, error) {
	w, err := q.engine().Wake(ctx, key, parking.WakeOptions{Leaver: parking.Task(opts.Leaver), Most: opts.Most})
	woken := Woken{Pending: w.Pending, Left: w.Left}
	for _, t := range w.Tasks {
		woken.Tasks = append(woken.Tasks, Task(t))
	}
	return woken, err
}

// ForwardWake passes on the wake of a task that ends without trying its key, such as one that has no handler: the next
// waiter is woken. It also removes the task from the sequence of its key, which its headers name; without headers its
// place there is kept. It does nothing for a task that neither waits nor is in a sequence.
func (q *Queue) ForwardWake(ctx context.Context, t Task, headers map[string]string) error {
	return q.engine().ForwardWake(ctx, parking.Task(t), headers)
}

// Inspector returns the part of the Queue that lists waiting tasks and reorders them.
func (q *Queue) Inspector() *Inspector { return &Inspector{q.engine()} }
