package line

import (
	"context"

	"github.com/railtoken/railtoken/internal/ends"
)

// Drop deletes a task that is parked on key, or that keeps its position in the sequence of key while it is retried later or
// scheduled, with its uniqueness lock. Those who hear of its end, or wait for it, are told: see [Engine.end]. It returns [Ended], or
// the state of a task that does not wait so; that task stays.
func (e *Engine) Drop(ctx context.Context, key string, t Task) (string, error) {
	state, _, err := e.end(ctx, t, ending{only: key, end: ends.End{State: ends.Deleted, Cause: ends.ByHand}})
	return state, err
}
