package line

import (
	"context"
	"time"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// Stalled notes that this process was silent for so long that others may have taken back the runs that it has now. Until they
// end, the Engine asks Redis before asynq's own script ends one of them: that script knows no runs, and would end the next one.
func (e *Engine) Stalled() {
	now := time.Now()
	e.runs.stalled.Store(&now)
}

// takenBack reports whether another process has taken back a run, as far as Redis can be asked.
func (e *Engine) takenBack(ctx context.Context, r *Run) bool {
	stalled := e.runs.stalled.Load()
	if stalled == nil || r.since.After(*stalled) {
		return false
	}
	run, err := e.client.HGet(ctx, r.task.Hash(), asynqwire.PendingSinceField).Result()
	return err == nil && run != r.nonce
}
