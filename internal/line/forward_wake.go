package line

import (
	"context"
	"errors"
	"fmt"
)

// ForwardWake passes on the wake of a task that ends without trying its key: the next waiter is woken. It also removes
// the task from its sequence, unless the task stays there. It does nothing for a task that was never parked or in a sequence.
func (e *Engine) ForwardWake(ctx context.Context, t Task, stays bool) error {
	waits, sequence, err := e.keysOf(ctx, t)
	if waits != "" {
		w, failed := e.Wake(ctx, waits, WakeOptions{Leaver: t})
		e.repaired(waits, w, false)
		err = errors.Join(err, failed)
	}
	if sequence != "" && !stays {
		left, failed := e.Remove(ctx, t, sequence)
		if failed == nil && left.Parked > 0 && len(left.Next) > 0 {
			_, failed = e.WakeTask(ctx, sequence, left.Next[0])
		}
		err = errors.Join(err, failed)
	}
	if err != nil {
		return fmt.Errorf("delayqueue: forward the wake of task %s: %w", t, err)
	}
	return nil
}

// IsFirst reports whether the task, whose timer has brought it back, is the first waiter of the key that it was parked on:
// the one that a release would have woken. If others stand before it, a release has just woken one of those, and this task
// has come before that one by chance. It reports false if Redis does not answer.
func (e *Engine) IsFirst(ctx context.Context, t Task) bool {
	key, _, err := e.keysOf(ctx, t)
	if err != nil || key == "" {
		return false
	}
	first, err := e.client.ZRange(ctx, e.names.Waiters(key), 0, 0).Result()
	return err == nil && len(first) == 1 && first[0] == t.Entry()
}

// keysOf returns the key that a task waits for, or was woken for, and the one whose sequence it is in; empty when there is
// none.
func (e *Engine) keysOf(ctx context.Context, t Task) (waits, sequence string, err error) {
	names, err := e.client.HMGet(ctx, t.Hash(), WaitField, SequenceField).Result()
	if err != nil {
		return "", "", err
	}
	waits, _ = ParseWait(names[0]).Key()
	mark, _ := names[1].(string)
	sequence, _ = SequenceOf(mark)
	return waits, sequence, nil
}

// forward wakes the next waiter in place of a task that was woken and now waits for another key.
func (e *Engine) forward(ctx context.Context, waiters string) {
	key, ok := KeyOf(waiters)
	if !ok {
		return
	}
	w, err := e.Wake(ctx, key, WakeOptions{})
	if err != nil {
		e.log.WarnContext(ctx, "passing on a wake failed; it is made again once Redis answers", "error", err)
	}
	e.repaired(key, w, false)
}
