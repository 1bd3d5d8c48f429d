package middleware

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
)

// locks does what package locking does not export.
var locks = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

// lock is shared by all tasks of a middleware.
type lock struct {
	Options // with its defaults
	*taskrun.Server
	SlotBudget *slotBudget     // of the server
	watcher    locking.Watcher // nil if the locker does not notify of releases
	colocated  bool            // the locks can be taken and released with the tasks
	apart      bool            // the locks are never taken and released with the tasks
	early      bool            // the keys of a task are known before its run
	backend    string          // of the locker, for the observer
	toQueue    string          // the queue in which tasks wait; "" for their own queue
	opts       locking.Options
	group      taskrun.Group
	notifyFor  time.Duration // how long a refused attempt subscribes to the release
	limits     taskrun.Limits
	order      Order
	maxAge     time.Duration // the limit on age; 0 for none
	warned     sync.Map      // task types for which warnOfMaxHold has logged
	held       atomic.Int64  // how long handlers take: a moving average in ns
}

// engine returns what parks and wakes tasks; nil if there is no Queue.
func (l *lock) engine() *line.Engine { return (*line.Engine)(l.Queue) }

// reported returns what the reports of the server are made from; nil without a Queue.
func (l *lock) reported() *holdings.Set {
	if l.Queue == nil {
		return nil
	}
	return l.engine().Held()
}

// learns reports whether tasks may come with their locks. In order, a lock that is elsewhere must not be taken before the run
// knows the task's position, and a limit on age needs that, too. A lock elsewhere is taken before the run only if a refusal is
// not left to the run, which would ask once more.
func (l *lock) learns() bool {
	if !l.colocated {
		_, parks := l.parksFetched()
		return l.apart && parks && l.order == BestEffort
	}
	return l.order != StrictFIFO || l.maxAge == 0
}

// meanHold returns how long handlers of this middleware take on average; zero while unknown.
func (l *lock) meanHold() time.Duration { return time.Duration(l.held.Load()) }

// run is one run of one task, from its start to the error that asynq receives.
type run struct {
	*lock
	task    *asynq.Task
	id      line.Task
	active  *line.Run // nil if the task cannot be parked
	seq     *sequence // nil without an order
	keys    []string
	also    []string // further keys of its items for which it is parked
	attempt int      // the task's retry count
	fetched bool     // it stands for a task that is parked as it is fetched, without a run
	left    int      // how many retries it has left

	withoutLock bool         // it has no keys besides those of its items
	superseding *superseding // that of the task, also in the run of an item
	own         superseding  // that of the task

	since time.Time // when the task was first refused or began, if it supersedes others

	outage   outage // of the lock servers
	refusals int
	firstAt  time.Time
	came     bool // it has come with its lease
	waiting  bool // it waits in its slot, within the budget

	collected  bool                  // it has tried to collect its keys
	collecting func(context.Context) // while it collects: ends the marks that keep other tasks from that

	began     time.Time       // when its handler began
	took      time.Duration   // by the last attempt, for the observer
	freed     time.Time       // when it was last notified of a release, for the observer
	released  <-chan struct{} // receives releases of its keys while they are watched
	stopWatch func()
	lease     *locking.Lease        // to be released
	woken     map[string]line.Woken // what its acknowledgement has woken, by keys
	passed    []string              // its keys that other owners have taken, and whose next tasks these wake
	blind     bool                  // releases cannot be watched
	holding   holdings.Holding      // what it holds while its handler runs
}

// sequence is the place of a task that runs in the order in which the tasks of its key arrived (FIFO, StrictFIFO). It is nil
// without an order.
type sequence struct {
	*run
	at     time.Time // the position of the task
	before int       // how many tasks are before it
	outage outage    // of the Redis that has the sequence
	joined bool      // the task has joined the sequence in this run
}

// outage is how long a run has been waiting because of errors of one kind.
type outage struct {
	began  time.Time
	delays *backoff.ExponentialBackOff
}

// comesBack reports whether asynq runs the task again after a run without the lock that has ended with err. If that run
// was cancelled, asynq has already returned the task to its queue.
func (r *run) comesBack(err error) bool {
	if errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask) {
		return false
	}
	_, waiting := waits(err)
	return waiting || !r.lastAttempt() || errors.Is(err, context.Canceled)
}

// lastAttempt reports whether asynq would archive the task for any error, including a conflict.
func (r *run) lastAttempt() bool { return r.left == 0 }

func (r *run) isStopping() bool {
	select {
	case <-r.Stopping:
		return true
	default:
		return false
	}
}

// inOrder has a run keep the order of its middleware.
func (r *run) inOrder() *run {
	if r.order != BestEffort {
		r.seq = &sequence{run: r}
	}
	return r
}

// ahead returns how many tasks were before this one when it was last admitted or refused; 0 without a sequence.
func (r *sequence) ahead() int {
	if r == nil {
		return 0
	}
	return r.before
}

// waited returns the time since the first refusal of the task, also if that was in an earlier run; zero if the task has
// not been refused since its handler last ran.
func (r *run) waited() time.Duration {
	first := r.active.Met(r.attempt).First
	if first.IsZero() || !r.firstAt.IsZero() && r.firstAt.Before(first) {
		first = r.firstAt
	}
	if first.IsZero() {
		return 0
	}
	return max(time.Since(first), 0)
}

// nowhere reports whether the task can wait only in its slot: it cannot be parked, and asynq archives it for any error.
func (r *run) nowhere() bool { return r.active == nil && r.lastAttempt() }

// list has the reports of the server name what the run holds, from the start of its handler.
func (r *run) list(lease *locking.Lease, item bool) {
	r.holding = holdings.Holding{
		Queue: r.id.Queue, ID: r.id.ID, Type: r.task.Type(), Keys: r.keys, Since: r.began, Item: item, Lease: lease, Holder: r,
		Waited: r.refusals > 0 || r.active.Met(r.attempt).Count > 0,
	}
	r.reported().Add(&r.holding)
}

// unlist ends that. Further calls do nothing.
func (r *run) unlist() { r.reported().Remove(&r.holding) }
