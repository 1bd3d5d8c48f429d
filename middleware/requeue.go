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
	"github.com/railtoken/railtoken/middleware/internal/standby"
)

const (
	// afterExpiry is the time between the end of a holder's lease and the next attempt of a parked task by itself.
	afterExpiry = time.Second
	// defaultStandby is the default of Requeue.Standby.
	defaultStandby = 4
	// standbyTime is how long a task is on standby before it is parked.
	standbyTime = 500 * time.Millisecond
	// standbyShare limits standby to this fraction, 1/100, of the task's remaining time. asynq has already begun to count
	// the task's timeout, which is meant for its handler.
	standbyShare = 100
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
// When a key is held only briefly, the next task waits in its slot, on standby, so that no time is lost between two
// tasks. Such a wait lasts at most half a second and at most a hundredth of the time that the task has left. It draws
// on the server's slot budget and takes no slot that other tasks need. A key has no standby if it is held for more
// than a quarter of a second on average, or if its present holder has had it for that long.
type Requeue struct {
	// Standby is the maximum number of tasks of a server that wait in their slots for one key; 4 when zero, none when
	// negative. Only as many tasks wait as it takes to bridge the time that a woken task needs to arrive: usually one.
	// Tasks that run in order do not wait so.
	Standby int

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

// Decide returns WaitInSlot for a task that may be on standby, and Park for any other.
func (r Requeue) Decide(c Conflict) Decision {
	d := Decision{
		Outcome: Park, StandbyLimit: r.standbyLimit(c), Delay: cmp.Or(r.Delay, defaultDelay(c.Holder)),
		Limits: r.Limits, OnLimit: r.OnLimit,
	}
	until := c.FirstAt.Add(standbyFor(c))
	if c.MayWait && c.MayStandBy && !c.hasWaited && d.StandbyLimit > 0 &&
		(c.Reserved || c.Standby < d.StandbyLimit) && c.Now.Before(until) {
		d.Outcome, d.Standby, d.WaitUntil = WaitInSlot, true, until
	}
	return d
}

// defaultDelay returns the time until a parked task tries again by itself: until a moment after the end of the holder's
// lease.
func defaultDelay(h locking.Holder) time.Duration {
	if h.Remaining < 0 {
		return maxFallback
	}
	return min(h.Remaining, maxFallback-afterExpiry) + afterExpiry
}

// standbyLimit returns how many tasks may be on standby. It is zero while the key is held for longer than usual, and
// where tasks wait in their slots in another way.
func (r Requeue) standbyLimit(c Conflict) int {
	if c.hasWaited || c.Hold > standbyFor(c) || !c.Holder.Since.IsZero() && c.Now.Sub(c.Holder.Since) > standby.LongHold {
		return 0
	}
	return standby.Limit(c.Hold, c.Pickup, cmp.Or(r.Standby, defaultStandby))
}

// standbyFor returns how long a task may be on standby, counted from its first refusal.
func standbyFor(c Conflict) time.Duration {
	if c.Deadline.IsZero() {
		return standbyTime
	}
	return min(standbyTime, c.Deadline.Sub(c.FirstAt)/standbyShare)
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
