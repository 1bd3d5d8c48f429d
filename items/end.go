package items

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
)

const (
	// saveTimeout bounds a save while items run, and savePatience those at the end of a run.
	saveTimeout  = time.Second
	savePatience = 5 * time.Second
	// pauseAfter is when a task runs again if its results could not be saved.
	pauseAfter = 10 * time.Second
)

// errStopping is the error of a run that ends because the server shuts down.
var errStopping = errors.New("items: the server shuts down; the task goes on elsewhere")

// process runs the items that are left, and returns the error for asynq.
func (c *conductor) process(ctx context.Context, task *asynq.Task) error {
	if err := c.begin(ctx); err != nil {
		c.run.ForwardWake(ctx)
		return err
	}
	c.conduct(ctx)
	for _, r := range c.refused {
		c.store.note(record{
			Attempt: c.run.Attempt(),
			Result: Result{
				Index: r.index, State: Refused, Tries: c.store.noted[r.index].Tries, Key: r.held.Key, Holder: r.held.Holder.Label,
				RetryAfter: r.held.Holder.Remaining,
			},
		})
	}
	if err := c.saveAll(ctx); err != nil {
		c.log.WarnContext(ctx, "results of items could not be saved; these items run again", "task",
			c.store.task.String(), "error", err)
		c.run.ForwardWake(ctx)
		if isLasting(err) {
			return err
		}
		return c.run.Pause(pauseAfter, err)
	}
	parked, err := c.outcome(ctx, task)
	// An item that has run has released its keys and woken the next task of each.
	if !parked && len(c.todo)+len(c.behind)+len(c.refused) > 0 {
		c.run.ForwardWake(ctx)
	}
	return err
}

// outcome decides what becomes of the task once no item can run, and reports whether it is parked.
func (c *conductor) outcome(ctx context.Context, task *asynq.Task) (parked bool, err error) {
	if ctx.Err() != nil && !c.isComplete(context.Cause(ctx)) {
		return false, context.Cause(ctx)
	}
	if c.err != nil {
		return false, c.err
	}
	if len(c.todo)+len(c.behind) > 0 && !c.broken {
		return false, c.run.Pause(0, errStopping)
	}
	retried, blocked := c.left()
	if len(blocked) > 0 && c.policy == FinishLater {
		held := make([]*locking.HeldError, len(blocked))
		for n, r := range blocked {
			held[n] = r.held
		}
		return true, c.run.Park(ctx, held, blocked[0].at)
	}
	report := c.store.report()
	if len(retried) > 0 {
		return false, c.failed(report, retried)
	}
	if report.Err() != nil {
		c.keep(ctx, task, report)
	}
	if c.finish != nil {
		return false, c.finish(ctx, report)
	}
	return false, report.Err()
}

// isComplete reports whether the lease of the whole run was lost when all items were done and nothing else is left to do.
// Then the middleware decides whether that counts.
func (c *conductor) isComplete(cause error) bool {
	return errors.Is(cause, locking.ErrLost) && c.finish == nil && !slices.Contains(c.store.done, false)
}

// left returns the failed items that have tries left, and one refused item for each key that is held, first the one whose
// key is most likely free first.
func (c *conductor) left() (retried []record, blocked []refusal) {
	for _, r := range c.store.noted {
		if r.State == Failed && !c.isFinal(r) {
			retried = append(retried, r)
		}
	}
	known := map[string]bool{}
	for _, r := range c.refused {
		if !known[r.held.Key] {
			known[r.held.Key] = true
			blocked = append(blocked, r)
		}
	}
	slices.SortStableFunc(blocked, func(a, b refusal) int { return cmp.Compare(a.freeIn(), b.freeIn()) })
	return retried, blocked
}

// freeIn estimates when the key of a refused item will be free. A key that was taken a moment ago is likely to be held
// briefly, and one that has been held for long is likely to be held for about as long again. The remaining time of the
// lease is an upper limit that matters when the holder has died, because a living holder renews its lease.
func (r refusal) freeIn() time.Duration {
	h, estimate := r.held.Holder, time.Duration(math.MaxInt64)
	if h.Remaining >= 0 {
		estimate = h.Remaining
	}
	if !h.Since.IsZero() {
		estimate = min(estimate, max(r.at.Sub(h.Since), 0))
	}
	return estimate
}

// failed returns the error that makes asynq retry the task for its failed items.
func (c *conductor) failed(report Report, retried []record) error {
	err := &Error{Report: report, Retried: true}
	var due int64
	for _, r := range retried {
		if r.Due == 0 {
			return err
		}
		if due == 0 || r.Due < due {
			due = r.Due
		}
	}
	return &taskrun.DelayedError{Err: err, Delay: max(time.Until(time.UnixMilli(due)), 0)}
}

// keep writes a report as the task's result, for [ParseReport].
func (c *conductor) keep(ctx context.Context, task *asynq.Task, report Report) {
	text, err := json.Marshal(report)
	if err == nil {
		_, err = task.ResultWriter().Write(text)
	}
	if err != nil {
		c.log.WarnContext(ctx, "the report of a task's items could not be kept as its result", "task",
			c.store.task.String(), "error", err)
	}
}

// saveSoon saves results while other items run. If that fails, a later save includes them.
func (c *conductor) saveSoon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	err := c.store.save(ctx)
	if isLasting(err) {
		c.err = err
	}
	c.store.since = time.Now() // of what is left, if it has failed
}

// saveAll saves all results, and tries again while Redis refuses.
func (c *conductor) saveAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), savePatience)
	defer cancel()
	pauses := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(500*time.Millisecond))
	return backoff.Retry(func() error {
		err := c.store.save(ctx)
		if isLasting(err) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(pauses, ctx))
}
