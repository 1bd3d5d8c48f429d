package middleware

import (
	"errors"
	"fmt"
	"time"
)

// Defaults of [Wait].
const (
	DefaultWaitMax      = time.Second
	DefaultWaitInitial  = 10 * time.Millisecond
	DefaultWaitInterval = 250 * time.Millisecond
	DefaultWaitMargin   = time.Second
)

// Backoff is a series of growing, jittered delays.
type Backoff struct {
	Initial time.Duration // the first delay
	Max     time.Duration // no delay grows beyond it, jitter apart
	Jitter  float64       // each delay is drawn from 1-Jitter to 1+Jitter times its value
}

// Wait keeps a task in conflict in its worker slot for a while and tries again with jittered, exponentially growing delays, or
// as soon as the key is given back. It gives way to the next strategy when its bounds are reached, too many tasks of the
// server wait already, or the server shuts down. The zero value waits for up to a second and then requeues.
type Wait struct {
	// Max is the longest time to wait; 1 s when zero.
	Max time.Duration
	// Attempts is how many times the lock may be tried; no limit but Max when zero.
	Attempts int
	// Initial is the first delay, 10 ms when zero, and Interval the largest, 250 ms when zero.
	Initial, Interval time.Duration
	// Margin is the time that is left before the task's deadline when the waiting ends; 1 s when zero.
	Margin time.Duration

	next Strategy
}

// Then returns the strategy that waits like w and leaves the decision to next when the waiting has an end.
func (w Wait) Then(next Strategy) Wait {
	w.next = next
	return w
}

// Decide returns WaitInSlot while there is time, and then what the next strategy decides, [Requeue] if none was given.
func (w Wait) Decide(c Conflict) Decision {
	w = w.withDefaults()
	until := c.FirstAt.Add(w.Max)
	if !c.Deadline.IsZero() {
		if end := c.Deadline.Add(-w.Margin); end.Before(until) {
			until = end
		}
	}
	if !c.MayWait || !c.Now.Before(until) || w.Attempts > 0 && c.Attempt >= w.Attempts {
		c.hasWaited = true
		return w.next.Decide(c)
	}
	return Decision{
		Action: WaitInSlot, WaitUntil: until,
		Backoff: Backoff{Initial: w.Initial, Max: w.Interval, Jitter: 0.5},
	}
}

// DelayQueue returns that of the next strategy.
func (w Wait) DelayQueue() string { return delayQueue(w.withDefaults().next) }

// Validate returns every fault of the strategy at once, or nil.
func (w Wait) Validate() error {
	var errs []error
	for name, d := range map[string]time.Duration{"Max": w.Max, "Initial": w.Initial, "Interval": w.Interval, "Margin": w.Margin} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("middleware: Wait.%s is %v: it cannot be negative", name, d))
		}
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

// TaskOrder returns that of the next strategy.
func (w Wait) TaskOrder() (Order, time.Duration) { return orderOf(w.withDefaults().next) }

func (w Wait) withDefaults() Wait {
	for _, d := range []struct {
		value *time.Duration
		zero  time.Duration
	}{{&w.Max, DefaultWaitMax}, {&w.Initial, DefaultWaitInitial}, {&w.Interval, DefaultWaitInterval}, {&w.Margin, DefaultWaitMargin}} {
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	if w.next == nil {
		w.next = Requeue{}
	}
	return w
}
