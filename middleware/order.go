package middleware

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/internal/tasklock"
	"github.com/railtoken/railtoken/locking"
)

// Order says in which order the tasks of a key run. All handlers that work on a key must use the same one, and tasks of the orders other
// than [BestEffort] have one key each: the text of the package tells what happens else.
type Order int

// The orders.
const (
	// BestEffort wakes the task next that was refused first. A task that arrives while the key is free does not queue up.
	BestEffort Order = iota
	// FIFO runs tasks in the order in which they came: by worker.Client.EnqueueInOrder, or when they first ran. Nobody passes a task
	// that waits. One whose handler fails leaves the line and joins it anew when asynq retries it.
	FIFO
	// StrictFIFO is FIFO, and a task whose handler fails keeps its place: those behind it wait until it has succeeded or is archived. When
	// the strategy sets a limit on age, a task that has been in line for longer than half of it is passed, so that those behind it do
	// not reach theirs for it.
	StrictFIFO
)

// String returns the order in a word.
func (o Order) String() string {
	if o < BestEffort || o > StrictFIFO {
		return fmt.Sprintf("Order(%d)", int(o))
	}
	return [...]string{"best effort", "FIFO", "strict FIFO"}[o]
}

// recovererDelay is how long a task waits behind one that is left to asynq's recoverer before it looks again: that looks when a server starts, and
// then each minute.
const recovererDelay = 5 * time.Second

// errOneKey is what is wrong with a task of several keys that is to run in order.
var errOneKey = errors.New("tasks that run in order have one key: let the key function return one, or lock what the keys have in common")

// tryInTurn makes one attempt, when it is the task's turn.
func (r *run) tryInTurn(ctx context.Context) (*locking.Lease, *locking.HeldError, error) {
	if r.order != BestEffort {
		if held, err := r.turn(ctx, false); held != nil || err != nil {
			return nil, held, err
		}
	}
	return r.try(ctx)
}

// turn joins the line of the key and returns who stands before the task, or nil when it is its turn. locked says that the run has the key.
func (r *run) turn(ctx context.Context, locked bool) (*locking.HeldError, error) {
	for {
		turn, err := r.askTurn(ctx)
		if err == nil {
			if r.order == StrictFIFO && r.holdsUp(turn) {
				left := r.remove(ctx, turn.First, r.keys[0])
				r.wakeTasks(ctx, left.Next[:min(len(left.Next), 1)], ByRepair) // it may not be this one
				if !slices.Contains(left.Next, turn.First) {
					continue
				}
			}
			r.turns, r.place, r.ahead, r.first, r.begun = outage{}, turn.At, turn.Ahead, turn.First, true
			if !turn.FirstAgain.IsZero() || !turn.FirstLease.IsZero() && time.Now().After(turn.FirstLease) {
				r.noStandby = true // who is first is parked, has failed, or its worker has died: it will not run in a moment
			}
			if turn.FirstLost {
				back, held := r.bringBack(ctx, turn.First, turn.FirstBegun, locked)
				if back {
					continue
				}
				if held != nil {
					return held, nil
				}
			}
			return notYet(r.keys[0], turn, time.Now()), nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := r.sitOut(ctx, &r.turns, err); err != nil {
			return nil, err
		}
	}
}

// holdsUp reports whether the first in line has failed, and may hold up the others no more.
func (r *run) holdsUp(t parking.Position) bool {
	return r.maxAge > 0 && t.Ahead > 0 && t.FirstState == "retry" && !t.FirstParked && time.Since(t.FirstAt) > r.maxAge/2
}

// askTurn joins the line with the run's task, at the place that it was given before if there is one.
func (r *run) askTurn(ctx context.Context) (parking.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout(ctx))
	defer cancel()
	return r.engine().Join(ctx, r.id, r.keys[0], parking.JoinOptions{At: r.place, Keep: 2 * r.maxAge, Begins: !r.begun, Works: true})
}

// bringBack has the first in line run again whose worker has died, so that those behind it do not wait until asynq does. Nothing of it may run any
// more, which only the lock can tell: if it is held, bringBack returns by whom.
func (r *run) bringBack(ctx context.Context, t parking.Task, begun, locked bool) (back bool, held *locking.HeldError) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout(ctx))
	defer cancel()
	var err error
	if !locked {
		var lease *locking.Lease
		if lease, err = r.attemptOnce(ctx); err == nil {
			defer r.unlockAfterLook(ctx, lease)
		} else if held, ok := errors.AsType[*locking.HeldError](err); ok {
			return false, held
		}
	}
	if err == nil {
		back, err = r.engine().BringBack(ctx, t, begun)
	}
	if err != nil {
		r.Logger.WarnContext(ctx, "a task whose worker has died could not be brought back; asynq does so in a minute or two", "task", t.String(), "error", tasklock.WithoutKeys(err))
	}
	return back, nil
}

// unlockAfterLook gives back a key that was locked for a look. Who was refused it meanwhile is parked, and nobody else wakes that one.
func (r *run) unlockAfterLook(ctx context.Context, lease *locking.Lease) {
	_ = lease.Release(ctx)
	if lease.ShouldNotify() {
		r.wakeFirst(ctx)
	}
}

// notYet returns the refusal of a task that is not the first in line; nil for the first.
func notYet(key string, t parking.Position, now time.Time) *locking.HeldError {
	if t.Ahead == 0 {
		return nil
	}
	h := locking.Holder{Label: "the task first in line, " + t.First.String() + " (" + t.FirstState + ")", Remaining: locking.DefaultTTL}
	switch {
	case !t.FirstAgain.IsZero():
		h.Remaining = max(t.FirstAgain.Sub(now), 0)
	case t.FirstLease.IsZero():
	case now.Before(t.FirstLease.Add(parking.LeftAfter)): // by then it has ended, or its worker has died
		h.Remaining = max(t.FirstLease.Add(parking.LostAfter).Sub(now), 0)
	default:
		h.Remaining = recovererDelay
	}
	return &locking.HeldError{Key: key, Holder: h}
}

// verify looks whether it is the turn of a task that has waited for the lock alone. If not, it gives the key back and returns who stands
// before it; it does not wait on deck again.
func (r *run) verify(ctx context.Context, lease *locking.Lease) (*locking.Lease, *locking.HeldError, error) {
	held, err := r.turn(ctx, true)
	if held == nil && err == nil {
		return lease, nil, nil
	}
	r.noStandby = true
	_ = r.release(ctx, lease, false)
	switch {
	case !lease.ShouldNotify():
	case held != nil: // who is first may have come for the lock just now
		r.wakeTasks(ctx, []parking.Task{r.first}, ByRelease)
	default:
		r.wakeFirst(ctx)
	}
	return nil, held, err
}

// staysInLine reports whether a task whose run ends keeps its place: it will run again, and nobody may pass it.
func (r *run) staysInLine(ctx context.Context, failed bool, err error) bool {
	if !failed || r.order == BestEffort {
		return false
	}
	if errors.Is(ctx.Err(), context.Canceled) && (r.run.PutBack() || r.run == nil && r.isStopping()) {
		return true // also on its last attempt, and whatever the handler said: asynq has not listened
	}
	if errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask) || r.lastAttempt() {
		return false
	}
	return r.order == StrictFIFO && (r.maxAge == 0 || time.Since(r.place) < r.maxAge/2)
}

// comesBack reports whether asynq runs the task again after a run without the lock that has ended with err. When that was cancelled, asynq has put
// the task back.
func (r *run) comesBack(err error) bool {
	if errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask) {
		return false
	}
	_, waiting := waits(err)
	return waiting || !r.lastAttempt() || errors.Is(err, context.Canceled)
}

// remove takes the task out of its line, and returns who is next.
func (r *run) remove(ctx context.Context, t parking.Task, key string) parking.Front {
	left, _ := insist(ctx, r, "a task could not leave the line of its key; those behind it wait until it is gone",
		func(ctx context.Context) (parking.Front, error) { return r.engine().Remove(ctx, t, key) })
	return left
}

// leaveNeedlessLine takes a task out of the line that its producer has put it in though its handler knows no order.
func (r *run) leaveNeedlessLine(ctx context.Context) {
	for _, key := range r.keys {
		if parking.EnqueuedFor(r.id, key, r.task.Headers()) {
			r.remove(ctx, r.id, key)
		}
	}
}

// quitLine takes a task out of its line that ends without having had the key, and promotes the next one.
func (r *run) quitLine(ctx context.Context) {
	if r.order == BestEffort || len(r.keys) != 1 {
		return
	}
	left := r.remove(ctx, r.id, r.keys[0])
	if left.Parked > 0 {
		r.wakeTasks(ctx, left.Next[:min(len(left.Next), 1)], ByRelease)
	}
}

// wakeFirst promotes who is first in line, if that one is parked.
func (r *run) wakeFirst(ctx context.Context) {
	left, _ := insist(ctx, r, "who is first in line is not known; its timer will bring it back",
		func(ctx context.Context) (parking.Front, error) { return r.engine().Front(ctx, r.keys[0]) })
	r.wakeTasks(ctx, left.Next[:min(len(left.Next), 1)], ByRelease)
}

// wakeInLine promotes those who are next in line after the task has left it: the first, and for its place on deck the second.
func (r *run) wakeInLine(ctx context.Context, left parking.Front, lease *locking.Lease) {
	next := left.Next
	if !r.SlotBudget.standby.ReleasedInOrder(r.keys[0], r.noteHold(), r.SlotBudget.spareForNext) {
		next = next[:min(len(next), 1)]
	}
	cause := ByRelease
	if lease.HandedOff() && len(next) > 0 {
		next, cause = next[1:], ByStandby
	}
	if left.Parked > 0 || lease.ShouldNotify() {
		r.wakeTasks(ctx, next, cause)
	}
}

// wakeTasks promotes some tasks of the run's key, if they are parked: the first for a cause, the others for standby.
func (r *run) wakeTasks(ctx context.Context, tasks []parking.Task, cause WakeCause) {
	for i, t := range slices.Backward(tasks) { // the first comes last, to the very head of its queue
		woken, _ := insist(ctx, r, notWoken, func(ctx context.Context) (parking.Woken, error) { return r.engine().WakeTask(ctx, r.keys[0], t) })
		e := Event{Kind: Woke, Key: r.keys[0], Cause: cause}
		if i > 0 {
			e.Cause = ByStandby
		}
		for _, t := range woken.Tasks {
			e.Next = delayqueue.Task(t)
			r.observe(ctx, e)
		}
	}
}
