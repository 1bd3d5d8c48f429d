package middleware

import (
	"errors"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
)

const (
	defaultWait     = time.Second
	defaultInitial  = 10 * time.Millisecond
	defaultInterval = 250 * time.Millisecond
	defaultMargin   = time.Second
)

// Wait keeps a task in conflict in its worker slot for a while. The task tries again after growing delays with jitter,
// or as soon as the key is released. When a limit of Wait is reached, when too many tasks of the server already wait,
// or when the server shuts down, the next strategy decides. The zero value waits for up to a second and then requeues.
type Wait struct {
	// Max is the maximum time to wait; 1 s when zero.
	Max time.Duration
	// Attempts is the maximum number of attempts; when zero, only Max limits them.
	Attempts int
	// Initial is the first delay, 10 ms when zero. Interval is the maximum delay, 250 ms when zero.
	Initial, Interval time.Duration
	// Margin is how long before the task's deadline the wait ends; 1 s when zero.
	Margin time.Duration

	next Strategy
}

// Then returns a copy of w that leaves the decision to next when the wait ends.
func (w Wait) Then(next Strategy) Wait {
	w.next = next
	return w
}

// Decide returns WaitInSlot while the task may wait, and then the decision of the next strategy, which is the zero
// [Requeue] by default.
func (w Wait) Decide(c Conflict) Decision {
	w = w.withDefaults()
	until := c.FirstAt.Add(w.Max)
	if !c.Deadline.IsZero() {
		if end := c.Deadline.Add(-w.Margin); end.Before(until) {
			until = end
		}
	}
	if !c.MayWait || !c.Now.Before(until) || w.Attempts > 0 && c.Attempt >= w.Attempts {
		return w.next.Decide(c)
	}
	return Decision{Outcome: WaitInSlot, WaitUntil: until, Delay: growing(w.Initial, w.Interval, c.Attempt)}
}

// growing returns the delay after an attempt, counted from 1: it begins with first and grows by half each time, up to
// most.
func growing(first, most time.Duration, attempt int) time.Duration {
	most = max(first, most)
	for ; attempt > 1 && first < most; attempt-- {
		first += first / 2
	}
	return min(first, most)
}

// Unwrap returns the next strategy.
func (w Wait) Unwrap() Strategy { return w.withDefaults().next }

// Validate returns an error that lists all problems with the strategy, or nil.
func (w Wait) Validate() error {
	var errs []error
	for name, d := range map[string]time.Duration{
		"Max": w.Max, "Initial": w.Initial, "Interval": w.Interval, "Margin": w.Margin,
	} {
		errs = append(errs, leasing.CheckDuration("middleware: Wait."+name, d, leasing.LeastDuration))
	}
	if w.Attempts < 0 {
		errs = append(errs, fmt.Errorf("middleware: Wait.Attempts is %d: it cannot be negative", w.Attempts))
	}
	if v, ok := w.next.(validator); ok {
		errs = append(errs, v.Validate())
	}
	return errors.Join(errs...)
}

func (w Wait) parks() bool { return parks(w.withDefaults().next) }

func (w Wait) withDefaults() Wait {
	for _, d := range []struct {
		value *time.Duration
		zero  time.Duration
	}{{&w.Max, defaultWait}, {&w.Initial, defaultInitial}, {&w.Interval, defaultInterval}, {&w.Margin, defaultMargin}} {
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	if w.next == nil {
		w.next = Requeue{}
	}
	return w
}
