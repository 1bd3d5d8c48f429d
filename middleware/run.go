package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
)

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

	withoutLock bool // it has no keys besides those of its items

	outage   outage // of the lock servers
	refusals int
	firstAt  time.Time
	waiting  bool   // it waits in its slot, within the budget
	standby  string // the key that it is on standby for
	reserved string // the key for which standby has room reserved for it
	spare    bool   // a slot was free for standby when the room was reserved

	collected, collectedOnStandby bool                  // it has tried to collect its keys, after refusals and on standby
	collecting                    func(context.Context) // while it collects: ends the marks that keep other tasks from that

	began     time.Time       // when its handler began
	took      time.Duration   // by the last attempt, for the observer
	freed     time.Time       // when it was last notified of a release, for the observer
	released  <-chan struct{} // receives releases of its keys while they are watched
	stopWatch func()
	lease     *locking.Lease   // to be released
	plan      wakePlan         // what its acknowledgement wakes
	passed    []string         // its keys that other owners have taken, and whose next tasks these wake
	blind     bool             // releases cannot be watched
	holding   holdings.Holding // what it holds while its handler runs
}

// begin returns a new run of the task that asynq has put into the context.
func (l *lock) begin(ctx context.Context, task *asynq.Task) (*run, error) {
	id, err := line.TaskOf(ctx)
	if err != nil {
		return nil, err
	}
	attempt, _ := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	r := &run{lock: l, task: task, id: id, attempt: attempt, left: max(most-attempt, 0)}
	r.inOrder()
	if l.Queue != nil {
		if r.active, err = l.engine().Run(id); err != nil {
			return nil, err
		}
	}
	r.reserved, r.spare = l.SlotBudget.standby.Arrive(id, r.active.WokenFor())
	return r, nil
}

// process runs the task and returns the error for asynq.
func (r *run) process(ctx context.Context, next asynq.Handler) error {
	if err := r.prepare(ctx); err != nil {
		r.leave(ctx)
		return err
	}
	if r.withoutLock {
		r.began = time.Now()
		return next.ProcessTask(ctx, r.task)
	}
	lease, err := r.acquire(ctx)
	if err != nil {
		return r.ended(ctx, err)
	}
	r.lease = lease
	r.warnOfMaxHold(ctx)
	return r.handle(ctx, lease, next)
}

// prepare finds the keys of the task and checks whether it may run with them.
func (r *run) prepare(ctx context.Context) (err error) {
	r.keys, err = keysOf(ctx, r.Key, r.task, r.limits)
	if items, ok := errors.AsType[*taskrun.ItemsError](err); ok {
		if err = r.useItems(items); err != nil {
			err = &KeyError{Type: r.task.Type(), Err: err}
		}
	}
	r.observeTimer(ctx)
	if err != nil {
		return err
	}
	if r.seq != nil && len(r.keys) != 1 {
		return &KeyError{Type: r.task.Type(), Err: errOneKey}
	}
	return nil
}

// observeTimer reports that the task's timer has brought it back.
func (r *run) observeTimer(ctx context.Context) {
	if !r.active.ByTimer(r.attempt) {
		return
	}
	e := Event{Kind: Woke, Cause: ByTimer, Next: delayqueue.Task(r.id)}
	if len(r.keys) == 1 {
		e.Key = r.keys[0]
	}
	r.observe(ctx, &e)
}

// leave ends the wait of a task whose run ends without an attempt to lock its keys: it forwards a wake that the task
// may have received, and removes the task from the sequence.
func (r *run) leave(ctx context.Context) {
	defer r.seq.quit(ctx) // once the task is no longer parked
	if r.Queue == nil || !parks(r.Strategy) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTimeout)
	defer cancel()
	r.active.Passed()
	if err := r.engine().ForwardWake(ctx, r.id, false); err != nil {
		r.Logger.WarnContext(ctx, "passing on a wake failed; the waiters' timers will bring them back", "task",
			r.id.String(), "error", err)
	}
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

// acquire locks the keys. As long as another holder has one of them, it does what the strategy decides.
func (r *run) acquire(ctx context.Context) (lease *locking.Lease, err error) {
	defer func() { r.stopWaiting(ctx, lease != nil) }()
	lease, held, err := r.tryInOrder(ctx)
	if !r.active.Woken() && err == nil {
		r.SlotBudget.came(lease == nil)
	}
	for err == nil && lease == nil {
		d := r.decide(ctx, held)
		collects := (d.Outcome == Park || d.Outcome == WaitInSlot && d.Standby) && r.starves(ctx, held)
		if d.Outcome == Park && !collects {
			d = r.stay(ctx, d)
		}
		switch {
		case collects || d.Outcome == WaitInSlot:
			lease, held, err = r.waitFor(ctx, held, d, collects)
		case d.Outcome == Park:
			r.stopWaiting(ctx, false)
			return nil, r.park(ctx, d, held)
		case d.Outcome < Archive || d.Outcome > WaitInSlot:
			return nil, r.undecided(ctx, held, fmt.Errorf("middleware: the strategy returned the outcome %q, "+
				"which it cannot choose: return Archive, Retry, Discard, Park or WaitInSlot", d.Outcome))
		default:
			return nil, r.conflict(held, d.Outcome, 0)
		}
	}
	return lease, err
}

// waitFor waits in the slot for the keys, and tries to lock them.
func (r *run) waitFor(ctx context.Context, held *locking.HeldError, d Decision, collects bool) (
	lease *locking.Lease, next *locking.HeldError, err error,
) {
	ended := r.parkIfCancelled(ctx, held)
	switch {
	case collects:
		lease, next, err = r.collect(ctx, held)
	case d.Standby:
		lease, next, err = r.waitOnStandby(ctx, d)
	default:
		if err = r.waitInSlot(ctx, d); err == nil {
			lease, next, err = r.tryInOrder(ctx)
		}
	}
	if err = ended(err); err != nil && lease != nil { // asynq has ended the run meanwhile
		r.giveUp(context.WithoutCancel(ctx), lease)
		r.lease, lease = nil, nil
	}
	return lease, next, err
}

// decide asks the strategy about a conflict, and replaces a decision that cannot be carried out.
func (r *run) decide(ctx context.Context, held *locking.HeldError) Decision {
	now := time.Now()
	if r.refusals == 0 {
		r.firstAt = now
	}
	r.refusals++
	r.observeRefusal(ctx, held)
	c := r.facts(now, held)
	c.Deadline, _ = ctx.Deadline()
	c.MayWait = (r.waiting || r.SlotBudget.hasRoom()) && !r.isStopping()
	c.MayStandBy = r.order == BestEffort && r.SlotBudget.mayStandBy(r.spare && r.reserved == held.Key)
	d := r.Strategy.Decide(c)
	if d.Outcome == WaitInSlot &&
		(d.Standby && !c.MayStandBy || !r.reserveSlot(ctx, held.Key, d, c.Reserved)) { // another task was faster
		c.MayWait = false
		d = r.Strategy.Decide(c)
	}
	if d.Outcome == WaitInSlot && (!c.MayWait || !d.WaitUntil.After(now)) {
		c.MayWait = false
		d = Requeue{}.Decide(c) // the strategy is a user's that would fill the slots, or spin
		if r.Queue == nil {
			d = Decision{Outcome: Retry}
		}
	}
	if d.Outcome == Park && d.Delay <= 0 {
		d.Delay = defaultDelay(held.Holder)
	}
	return d
}

// observeRefusal reports the first refusal of the task since its handler last ran.
func (r *run) observeRefusal(ctx context.Context, held *locking.HeldError) {
	if r.refusals == 1 && r.active.Met(r.attempt).Count == 0 {
		r.reported().Conflict(held.Key)
		r.observe(ctx,
			&Event{Kind: Refused, Key: held.Key, Holder: known(held.Holder), Ahead: r.seq.ahead(), Waited: r.waited()})
	}
}

// facts returns what a strategy is told about a conflict, except the task's deadline and whether it may wait.
func (r *run) facts(now time.Time, held *locking.HeldError) Conflict {
	state := r.SlotBudget.standby.State(held.Key)
	if state.Hold == 0 {
		state.Hold = r.meanHold()
	}
	return Conflict{
		Type: r.task.Type(), Key: held.Key, Holder: held.Holder, Attempt: r.refusals, FirstAt: r.firstAt,
		Now: now, Waited: now.Sub(r.firstAt), Standby: state.Standby, Hold: state.Hold, Pickup: state.Pickup,
		Reserved: r.reserved == held.Key, Ahead: r.seq.ahead(),
	}
}

// reserveSlot reserves what waiting in the slot needs: a share of the budget and, on standby, room for the key.
func (r *run) reserveSlot(ctx context.Context, key string, d Decision, reserved bool) bool {
	if r.standby != "" && (!d.Standby || r.standby != key) {
		r.leaveStandby(ctx, false)
	}
	if d.Standby && r.standby == "" {
		if !r.SlotBudget.standby.Enter(key, d.StandbyLimit, reserved) {
			return false
		}
		r.standby = key
	}
	if !r.waiting {
		r.waiting = r.SlotBudget.take()
	}
	return r.waiting
}

func (r *run) isStopping() bool {
	select {
	case <-r.Stopping:
		return true
	default:
		return false
	}
}

// warnOfMaxHold logs, once for each task type, that a task may run for longer than its lease can be held. A handler
// that uses all of that time loses its lease in every run, and the task never completes.
func (r *run) warnOfMaxHold(ctx context.Context) {
	maxHold := cmp.Or(r.opts.MaxHold, locking.DefaultMaxHold)
	deadline, ok := ctx.Deadline()
	if !ok || time.Until(deadline) <= maxHold {
		return
	}
	if _, warned := r.warned.LoadOrStore(r.task.Type(), true); !warned {
		r.Logger.WarnContext(ctx,
			"tasks may run for longer than their lease can be held, and lose it then: raise MaxHold, or lower asynq.Timeout",
			"type", r.task.Type(), "max_hold", maxHold, "time_left", time.Until(deadline).Round(time.Second))
	}
}
