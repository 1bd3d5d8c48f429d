package middleware

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
)

const (
	// afterExpiry is how long after the end of a holder's lease a parked task looks for itself whether it was forgotten.
	afterExpiry = time.Second
	// maxFallback bounds that look when a holder's lease has no end.
	maxFallback = locking.MaxTTL
)

// Requeue parks a task in conflict and frees its worker slot. The task that gives the key back wakes it. A conflict is
// not a failure: it uses up no retry, also not the last. The zero value has every default.
type Requeue struct {
	// Delay is when a parked task tries again although nobody woke it. When zero, it is a second after the holder's
	// lease would end: if the holder crashes, the key is free by then. asynq keeps whole seconds, so it is rounded up.
	Delay time.Duration

	// Bounds ends the waiting: by default after 10 000 conflicts or 24 h, or at once when 10 000 tasks wait for the key. A
	// task at a bound is archived, with a [ConflictError] that says which one.
	Bounds delayqueue.Bounds

	// OnBound, when not nil, is called instead for a task at a bound. Its error is the outcome of the run: nil completes the task.
	OnBound func(ctx context.Context, task *asynq.Task, conflict *ConflictError) error

	// Queue, when not empty, is a queue that tasks in conflict are moved to and wait in. By default a task stays in its
	// own, except on its last attempt, when asynq would archive it: then it is moved to "<queue>:delayed".
	Queue string
}

// Decide returns Park.
func (r Requeue) Decide(c Conflict) Decision {
	delay := r.Delay
	if delay == 0 {
		delay = c.Holder.Remaining + afterExpiry
		if c.Holder.Remaining < 0 || delay > maxFallback {
			delay = maxFallback
		}
	}
	return Decision{Action: Park, Delay: delay, Bounds: r.Bounds, OnBound: r.OnBound}
}

// DelayQueue returns the Queue field.
func (r Requeue) DelayQueue() string { return r.Queue }

// Validate returns every fault of the strategy at once, or nil.
func (r Requeue) Validate() error {
	var errs []error
	if r.Delay < 0 {
		errs = append(errs, fmt.Errorf("middleware: Requeue.Delay is %v: it cannot be negative", r.Delay))
	}
	if r.Queue != "" && strings.TrimSpace(r.Queue) == "" {
		errs = append(errs, fmt.Errorf("middleware: Requeue.Queue is %q: a queue's name cannot be blank", r.Queue))
	}
	return errors.Join(append(errs, r.Bounds.Validate())...)
}

func (Requeue) parks() bool { return true }
