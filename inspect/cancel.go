package inspect

import (
	"context"
	"errors"
	"fmt"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
)

// Cancellation says how a task is to end, and who has cancelled it, and why. By must be set.
type Cancellation struct {
	// Discard deletes the task. Otherwise it is archived, with By and Why as its last error, and can be run again.
	Discard bool
	// By is the operator or the program, and Why the reason: at most 500 bytes each. The task's error and the audit include both.
	By, Why string
	// Key is the key of the task, for the audit; empty if it is not known.
	Key string
}

// Validate returns an error that lists all problems with the cancellation, or nil.
func (c Cancellation) Validate() error {
	return errors.Join(operatorFaults(c.By, c.Why)...)
}

var (
	// ErrNotCancelled reports that a task stays as it is: it has ended, does not exist, or cannot be told.
	ErrNotCancelled = errors.New("inspect: the task was not cancelled")
	// ErrNotAttached reports that a task runs on a server without railtoken. The error matches ErrNotCancelled as well.
	ErrNotAttached = line.ErrNotAttached
)

// Cancel cancels a task, waiting or running, whatever its queue is and whether it has keys. It uses up no retry.
//
// A task that does not run ends at once: Cancel returns false. It leaves the waiters and the sequence of its keys, and the task
// behind it is woken.
//
// A task that runs is told: Cancel returns true, and does not wait for its end. The context of its handler ends within
// milliseconds, with a middleware.CancelledError as its cause. If the message is lost, that takes up to 5 s. The lease of its keys stays
// valid until the handler returns, so it can clean up, and the next task of the keys begins afterwards. If the handler returns an
// error, the task is archived or deleted; if it succeeds, or has committed its work (locking.Lease.MarkCommitted), it is done. A
// handler that ignores its context is not stopped: use [Inspector.Depose] to give its key to the next task. If the worker dies
// meanwhile, the task ends as soon as asynq recovers it. A handler without a lock (attach.Attached.Unlocked) is not told, and the
// task ends if asynq is to retry it.
//
// The audit has an entry. To call Cancel again is safe. The error matches [ErrNotCancelled] if the task stays as it is. After any
// other error, repeat the call.
func (i *Inspector) Cancel(ctx context.Context, t delayqueue.Task, c Cancellation) (told bool, err error) {
	if err := c.Validate(); err != nil {
		return false, err
	}
	s := Steering{Action: ActionCancel, Key: c.Key, Task: t, By: c.By, Why: c.Why}
	err = i.Audited(ctx, s, func(ctx context.Context) (string, error) {
		what, err := (*line.Engine)(i.queue).Cancel(ctx, line.Task(t), line.Cancellation{Discard: c.Discard, By: c.By, Why: c.Why})
		told = what == line.Told && err == nil
		switch {
		case errors.Is(err, ErrNotAttached):
			return "", fmt.Errorf("%w: %w", ErrNotCancelled, err)
		case err != nil:
			return "", fmt.Errorf("inspect: cancel task %s: %w", t, err)
		case told:
			return "its run was told", nil
		case what == line.Ended && c.Discard:
			return "deleted", nil
		case what == line.Ended:
			return "archived", nil
		case what == "gone":
			return "", fmt.Errorf("%w: task %s does not exist (any more)", ErrNotCancelled, t)
		case what == "aggregating":
			return "", fmt.Errorf("%w: task %s is in a group of asynq's: use asynq's Inspector", ErrNotCancelled, t)
		}
		return "", fmt.Errorf("%w: task %s is %s", ErrNotCancelled, t, what)
	})
	return told, err
}
