package line

import "context"

// Drop deletes a task that is parked on key, or that keeps its position in the sequence of key while it is retried later or
// scheduled, with its uniqueness lock: see [Engine.end]. It returns [Ended], or the state of a task that does not wait so; that
// task stays.
func (e *Engine) Drop(ctx context.Context, key string, t Task) (string, error) {
	state, _, err := e.end(ctx, t, ending{only: key})
	return state, err
}
