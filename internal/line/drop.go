package line

import "context"

// Dropped is what [Engine.Drop] returns for a task that it has deleted.
const Dropped = Ended

// Drop deletes a task that is parked on key, or that keeps its position in the sequence of key while it is retried later or
// scheduled, with its uniqueness lock: see [Engine.end]. It returns [Dropped], or the state of a task that does not wait so; that
// task stays.
func (e *Engine) Drop(ctx context.Context, key string, t Task) (string, error) {
	state, _, err := e.end(ctx, t, ending{only: key})
	return state, err
}
