package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
)

const (
	// afterExpiry is the time between the end of a holder's lease and the next attempt of a parked task by itself.
	afterExpiry = time.Second
	// maxFallback is the largest default Delay, and the default for a holder whose lease has no known end.
	maxFallback = taskrun.MaxTTL
)

// Requeue parks a task in conflict and frees its worker slot. A conflict is not a failure: it uses up no retry, even on
// the last attempt. The zero value uses the defaults.
//
// The task is woken when another task releases the key. A release outside of tasks also wakes it, if the key was locked
// through attach.Attached.Locker or worker.Worker.Locker. After a release by any other Locker, the task waits for its
// Delay.
//
// If a task of the same server holds the same keys, for a quarter of a second at most on average, the next task waits in
// the server's memory, for half a second at most and in no slot, and is handed the lease. This is so where locks are taken
// with the tasks (docs/design.md, 6.3), in BestEffort order, and with a [locking.Gate] that hands leases off.
type Requeue struct {
	// Delay is the time until a parked task tries again if no release wakes it. When zero, it is the rest of the
	// holder's lease plus a second, but at most 55 s: if the holder has crashed, the key is free by then. It is rounded
	// up, because asynq keeps whole seconds. A task with others before it tries later: the further back it is, the
	// later, up to 10 min, or 20 ms for each waiting task if there are more than 30 000. The limit on age shortens the
	// delay, because a task at that limit must be noticed.
	Delay time.Duration

	// Limits limits the wait. There are no limits by default, because asynq keeps only 9 999 archived tasks of a queue and
	// deletes older ones. A task that reaches the limit on conflicts or age is archived, with a [ConflictError] that names
	// the limit. A task that exceeds a limit on waiters (Waiters, Total) is not archived: it waits for its own timer
	// alone, which grows each time, up to 10 min, or longer when many tasks wait. When tasks run in order, each still has
	// its position in the sequence.
	Limits delayqueue.Limits

	// OnLimit, if set, decides what happens to a task that reaches any of the limits. The error that it returns becomes
	// the result of the run: nil completes the task, and returning the conflict archives the task with its reason.
	OnLimit func(ctx context.Context, task *asynq.Task, conflict *ConflictError) error

	// Order is the order in which the tasks of a key run; [BestEffort] when zero. All handlers that work on a key must
	// use the same order. Tasks that run in order must have exactly one key.
	Order Order

	// Queue, if set, is the queue in which tasks in conflict wait and from then on run, with their IDs, uniqueness
	// locks and counts: for example, a queue with workers of its own. By default, a task stays in its queue. All queues
	// must be on one Redis; Queue does not work on a Redis Cluster.
	Queue string
}

// Decide returns Park.
func (r Requeue) Decide(c Conflict) Decision {
	return Decision{Outcome: Park, Delay: cmp.Or(r.Delay, defaultDelay(c.Holder)), Limits: r.Limits, OnLimit: r.OnLimit}
}

// defaultDelay returns the time until a parked task tries again by itself: until a moment after the end of the holder's
// lease.
func defaultDelay(h locking.Holder) time.Duration {
	if h.Remaining < 0 {
		return maxFallback
	}
	return min(h.Remaining, maxFallback-afterExpiry) + afterExpiry
}

// Validate returns an error that lists all problems with the strategy, or nil.
func (r Requeue) Validate() error {
	errs := []error{leasing.CheckDuration("middleware: Requeue.Delay", r.Delay, leasing.LeastDuration)}
	if r.Order < BestEffort || r.Order > StrictFIFO {
		errs = append(errs, fmt.Errorf("middleware: Requeue.Order is %d: use BestEffort, FIFO or StrictFIFO", r.Order))
	}
	if r.Queue != "" && strings.TrimSpace(r.Queue) == "" {
		errs = append(errs, fmt.Errorf("middleware: Requeue.Queue is %q: a queue's name cannot be blank", r.Queue))
	}
	return errors.Join(append(errs, r.Limits.Validate())...)
}

func (Requeue) parks() bool { return true }

// RequeueOf returns the Requeue at the end of a chain of wrapped strategies. Its Order and Queue apply to the handler.
func RequeueOf(s Strategy) (Requeue, bool) {
	for {
		switch link := s.(type) {
		case Requeue:
			return link, true
		case *Requeue:
			return *link, true
		case interface{ Unwrap() Strategy }:
			s = link.Unwrap()
		default:
			return Requeue{}, false
		}
	}
}
