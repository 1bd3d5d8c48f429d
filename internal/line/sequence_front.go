package line

import (
	"context"
	"fmt"
)

// Remove removes a task from the sequence of key and returns the new front. Call it when the task has finished for
// good, and wake the first of the front. An empty sequence leaves nothing in Redis. Remove does nothing when the task
// is not in the sequence. A task that is parked on the key stays: asynq has given up the run that ends here, and the
// task has begun another, which waits. The first few tasks that are parked get a short timer
// ([ParkOptions].RetryAfter), however far back they stood when they parked: if the wake is lost, the loss costs no more
// than that.
//
// It makes one call to Redis when the sequence is empty then, otherwise two, and two or three more for each hundred
// tasks that are gone.
func (e *Engine) Remove(ctx context.Context, t Task, key string) (Front, error) {
	left, err := e.front(ctx, key, t.Entry())
	if err != nil {
		err = fmt.Errorf("delayqueue: remove task %s from its sequence: %w", t, err)
	}
	return left, err
}

// Front returns the front of the sequence of key. It removes tasks that are gone, and changes nothing else. It makes as
// many calls as Remove.
func (e *Engine) Front(ctx context.Context, key string) (Front, error) {
	left, err := e.front(ctx, key, "")
	if err != nil {
		err = fmt.Errorf("delayqueue: the front of a sequence: %w", err)
	}
	return left, err
}

// front returns the front of a sequence after it has removed one entry, none when leaver is empty, and those of tasks
// that are gone.
func (e *Engine) front(ctx context.Context, key, leaver string) (Front, error) {
	var gone []member
	looks := soonLooks
	for range goneCalls {
		found, err := e.remove(ctx, key, leaver, looks, gone)
		if err != nil {
			return Front{}, err
		}
		left := Front{Parked: found.parked}
		if len(found.front) == 0 {
			return left, nil
		}
		all, err := e.look(ctx, key, found.front)
		if err != nil {
			return Front{}, err
		}
		for _, entry := range found.waits {
			e.background(e.closing, followUpLimit, func(ctx context.Context) { e.hasten(ctx, entry) })
		}
		gone, leaver = nil, ""
		for i, each := range all {
			switch {
			case !each.live():
				gone = append(gone, found.front[i])
			case len(left.Next) < frontSize:
				left.Next = append(left.Next, each.task)
			}
			if len(left.Next) == 1 && len(gone) == 0 {
				left.Lost, left.Begun = all[0].verdict == headLost, found.begun
				left.Failed, left.Again = all[0].verdict == headFailed, all[0].due
			}
			if len(left.Next) == frontSize {
				break
			}
		}
		if len(gone) == 0 {
			return left, nil
		}
		looks = goneBatch
	}
	return Front{}, fmt.Errorf("it still has tasks that are gone after %d looks", goneCalls)
}

// departure is the reply of sequence_remove.lua.
type departure struct {
	parked int
	begun  bool     // the first task has begun to work
	waits  []string // the parked ones of the first tasks
	front  []member // the first tasks
}

// remove runs sequence_remove.lua. On a Cluster it then removes gone tasks that were parked from the index, which may be on
// another server: an entry that stays there counts until a later check finds that it is gone.
func (e *Engine) remove(ctx context.Context, key, leaver string, looks int, gone []member) (d departure, err error) {
	args := append([]any{looks, leaver}, pairsOf(gone)...)
	names := []string{e.names.Sequence(key), e.names.Waiters(key)}
	index := e.names.indexOf(key)
	inOne := !e.spread || e.names.Count() > 0 // the index is in the slot of the key
	if inOne {
		names = append(names, index)
	}
	r := replyOf(sequenceRemoveScript.Run(ctx, e.client, names, args...))
	parked, out, begun := r.number(), r.number(), r.yes()
	waits := r.texts(r.number())
	front := r.members()
	if r.err != nil {
		return d, r.err
	}
	for i := 0; out > 0 && i < len(gone); i++ {
		if of := e.names.Index(taskOf(gone[i].entry).Queue); of != index || !inOne {
			if err := e.client.ZRem(ctx, of, gone[i].entry).Err(); err != nil {
				e.log.WarnContext(ctx,
					"a task that no longer waits still counts as parked, until it is found to be gone", "error", err)
			}
		}
	}
	return departure{parked, begun, waits, front}, nil
}
