package line

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lockwire"
)

// Silence tells whether this process has not reported for so long that others may take back the runs that it has.
type Silence interface {
	Silent() bool
	// Heard waits until the process is not silent. Its error is the cause of ctx.
	Heard(ctx context.Context) error
}

// FollowSilence has the Engine ask whether this process is silent. It must be called before [Engine.Conn].
func (e *Engine) FollowSilence(s Silence) { e.silence = s }

// ErrTakenBack reports that another process has taken back a run, because this one was silent.
var ErrTakenBack = errors.New("the task was taken back, because its worker could not report in time: another worker runs it")

// againAfter is the pause before Redis is asked again whose run a task is in.
const againAfter = time.Second / 2

// Stalled notes that this process was silent for so long that others may have taken back the runs that it has now. Until they
// end, the Engine asks Redis before one of them begins its handler, and before asynq's own script ends one: that script knows no
// runs, and would end the next one.
func (e *Engine) Stalled() {
	now := time.Now()
	e.runs.stalled.Store(&now)
}

// mayBeTaken reports whether another process may have taken back a run.
func (e *Engine) mayBeTaken(r *Run) bool {
	if e.silence == nil || lockwire.ProcessOfRun(r.nonce) == "" {
		return false
	}
	stalled := e.runs.stalled.Load()
	return e.silence.Silent() || stalled != nil && !r.since.After(*stalled)
}

// isPresent reports whether a task is in this run still.
func (e *Engine) isPresent(ctx context.Context, r *Run) (bool, error) {
	run, err := e.client.HGet(ctx, r.task.Hash(), asynqwire.PendingSinceField).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return run == r.nonce, err
}

// takenBack reports whether another process has taken back a run, as far as Redis can be asked.
func (e *Engine) takenBack(ctx context.Context, r *Run) bool {
	if !e.mayBeTaken(r) {
		return false
	}
	present, err := e.isPresent(ctx, r)
	return err == nil && !present
}

// Begins is called before the handler. It waits while this process is silent, and returns ErrTakenBack if another process has
// taken back the run: once this one is heard, nobody does. Any other error is the cause of ctx.
func (r *Run) Begins(ctx context.Context) error {
	if r == nil || !r.queue.mayBeTaken(r) {
		return nil
	}
	for {
		if err := r.queue.silence.Heard(ctx); err != nil {
			return err
		}
		present, err := r.queue.isPresent(ctx, r)
		switch {
		case err == nil && present:
			return nil
		case err == nil:
			return ErrTakenBack
		}
		select {
		case <-time.After(againAfter):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
