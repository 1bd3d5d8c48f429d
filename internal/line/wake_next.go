package line

import "context"

// WakeNext wakes the next task of a key that was released outside of tasks: the head of its sequence, because only that one
// may lock the key, or else the next waiters.
func (e *Engine) WakeNext(ctx context.Context, key string, opts WakeOptions) (Woken, error) {
	front, err := e.Front(ctx, key)
	if err != nil {
		return Woken{}, err
	}
	if len(front.Next) == 0 {
		return e.Wake(ctx, key, opts)
	}
	w, err := e.WakeTask(ctx, key, front.Next[0])
	if len(w.Tasks) == 0 {
		w.Head, w.Lost, w.Begun = front.Next[0], front.Lost, front.Begun
	}
	return w, err
}
