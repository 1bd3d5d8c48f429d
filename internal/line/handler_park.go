package line

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
)

// WaitError is what a handler returns that has called [Engine.ParkHandler]. It is not a failure.
type WaitError struct {
	Task       Task
	Key        string
	RetryAfter time.Duration
}

// Error names the task, but not its key: asynq's logs show the error.
func (e *WaitError) Error() string { return fmt.Sprintf("delayqueue: task %s waits for a key", e.Task) }

// ParkHandler parks the task of an asynq handler on key once the handler has returned, and returns the error that the
// handler must return: a [*WaitError]. reached is given the conflicts of the task, this one included; its error is
// returned instead, and the task does not wait.
//
// The error matches [ErrNotOurs] when the task's server does not speak through this Engine, and is the cause of ctx
// when asynq has given up the run. With an unsupported version of asynq the task is retried after opts.RetryAfter.
func (e *Engine) ParkHandler(
	ctx context.Context, key string, opts ParkOptions, reached func(Task, Conflict) error,
) error {
	t, err := TaskOf(ctx)
	if err != nil {
		return err
	}
	if ctx.Err() != nil { // another run of the task may have begun
		return fmt.Errorf("delayqueue: park task %s: %w", t, context.Cause(ctx))
	}
	r, err := e.present(t)
	if err != nil {
		return err
	}
	opts.Attempt, _ = asynq.GetRetryCount(ctx)
	met := r.Met(opts.Attempt)
	met.Count++
	if err := reached(t, met); err != nil {
		return err
	}
	opts.Own = true
	if r != nil {
		r.Park(key, opts, nil)
	}
	return &WaitError{t, key, opts.RetryAfter}
}
