package line

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/railtoken/railtoken/internal/rediswire"
)

// End notes that the task's handler has returned. If asynq gave up the run before, because Redis could not be reached
// for 30 s, no acknowledgement comes. A task that is to be parked or postponed is then put back in the background as
// soon as Redis can be reached again.
func (r *Run) End(ctx context.Context) {
	if r == nil {
		return
	}
	current := r.current()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.judged = time.Now(), ctx.Err() == nil
	if r.parking != nil && ctx.Err() != nil && current {
		r.parkInBackground(r.parking, time.Time{})
	}
}

// Took notes that the run has locked keys. If it was woken for another key, the next waiter of that key is woken, unless the
// run may still take it.
func (r *Run) Took(keys []string, more bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owes == "" {
		return
	}
	if slices.ContainsFunc(keys, func(key string) bool { return r.queue.names.Waiters(key) == r.owes }) {
		r.owes = ""
	} else if !more {
		r.passWake()
	}
}

// Passed notes that the wake of the run was passed on.
func (r *Run) Passed() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owes = ""
}

// passWake passes on the wake of a run that does not take the key for which it was woken. The caller holds the mutex.
func (r *Run) passWake() {
	key, ok := KeyOf(r.owes)
	r.owes = ""
	if !ok {
		return
	}
	e := r.queue
	e.background(e.closing, followUpLimit, func(ctx context.Context) {
		w, err := e.WakeNext(ctx, key, WakeOptions{})
		e.repaired(key, w, false)
		if err != nil {
			e.log.WarnContext(ctx, "passing on a wake failed; it is made again once Redis answers", "task", r.task.String(),
				"error", err)
		}
	})
}

const (
	// backgroundFirst and backgroundMost are the pauses between the attempts to park a task while Redis cannot be
	// reached, and backgroundLimit is how long they go on.
	backgroundFirst = 500 * time.Millisecond
	backgroundMost  = 2 * time.Second
	backgroundLimit = time.Hour
)

// parkInBackground parks or postpones the task in the background, unless another server has it by then: asynq's lease
// on it ends at lease. It reports false when the Engine is closed. The caller holds the mutex.
func (r *Run) parkInBackground(p *parking, lease time.Time) bool {
	if r.inBackground {
		return true
	}
	r.inBackground = r.queue.background(r.queue.parking, backgroundLimit, func(ctx context.Context) {
		if r.follows(p) {
			return
		}
		wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(backgroundFirst),
			backoff.WithMaxInterval(backgroundMost), backoff.WithMaxElapsedTime(backgroundLimit))
		err := backoff.Retry(func() error {
			if !r.current() {
				return nil
			}
			err := r.carryOut(ctx, p, !time.Now().Before(lease))
			switch {
			case errors.Is(err, ErrGone):
				return nil
			case rediswire.IsFinal(err):
				return backoff.Permanent(err)
			}
			return err
		}, backoff.WithContext(wait, ctx))
		r.outcome(ctx, err)
		r.queue.runs.drop(r)
		if p.over != nil {
			p.over()
		}
	})
	return r.inBackground
}

// outcome notes what has become of a park in the background, once: a failure is logged.
func (r *Run) outcome(ctx context.Context, err error) {
	r.back.Do(func() {
		if err != nil {
			r.queue.log.WarnContext(ctx, "a task that has only waited could not be put back; asynq recovers it", "task",
				r.task.String(), "error", err)
		}
	})
}

// givenUp logs which tasks could not be put back before the Engine was closed. A call that still hangs does not log it in
// time: the process may end.
func (e *Engine) givenUp() {
	for _, r := range e.runs.all() {
		r.mu.Lock()
		under := r.inBackground
		r.mu.Unlock()
		if under && r.current() {
			r.outcome(context.WithoutCancel(e.parking), e.parking.Err())
		}
	}
}

// carryOut parks or postpones the task. A task that Redis refuses to park is postponed.
func (r *Run) carryOut(ctx context.Context, p *parking, late bool) error {
	opts := p.opts
	opts.nonce, opts.late = r.nonce, late
	opts.deadline, opts.unique = deadlineOf(r.message), textOf(r.message, uniqueField)
	if p.key == "" {
		return r.queue.postpone(ctx, r.task, opts)
	}
	place, err := r.queue.Park(ctx, r.task, p.key, opts)
	if rediswire.IsFinal(err) { // postponing needs only the rules that asynq itself needs
		r.queue.runs.refused.Do(func() {
			r.queue.log.ErrorContext(ctx,
				"Redis refuses to park tasks: no wake finds them, and each waits for its timer; "+
					"give the Redis user the commands and keys that railtoken needs", "error", err)
		})
		return r.queue.postpone(ctx, r.task, opts)
	}
	if err == nil && p.parked != nil && place.Count > 0 { // otherwise the task has run since
		p.told.Do(func() { p.parked(place) })
	}
	return err
}
