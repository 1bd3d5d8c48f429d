package parking

import "context"

// WakeNext wakes the next task of a key that was released outside of tasks: the first of its sequence, because only that
// one may lock the key, or else the next waiter.
func (e *Engine) WakeNext(ctx context.Context, key string) (Woken, error) {
	front, err := e.Front(ctx, key)
	if err != nil {
		return Woken{}, err
	}
	if len(front.Next) > 0 {
		return e.WakeTask(ctx, key, front.Next[0])
	}
	return e.Wake(ctx, key, WakeOptions{})
}
