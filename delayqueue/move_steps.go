package delayqueue

import (
	"context"
	"crypto/rand"
)

// nameInSteps does what name.lua does: the name is in the task's slot, the tombstone in its own. The new name is written only if the one
// that was looked up still stands, so that two runs use the same. A crash in between leaves at most a name that nobody has used.
func (q *Queue) nameInSteps(ctx context.Context, from Task, earlier Moved) (name, conflicts, first string, err error) {
	found, err := q.step(ctx, namedStep, from.hash(), earlier.move).StringSlice()
	if err != nil {
		return "", "", "", err
	}
	if len(found) == 0 {
		return "", "", "", ErrGone
	}
	if len(found) != 4 {
		return "", "", "", unexpected(found)
	}
	old, next := found[0], rand.Text()
	if old != "" {
		ran, err := q.whose(ctx, old, earlier.copy)
		if err != nil {
			return "", "", "", err
		}
		switch {
		case ran == "another", ran == "own" && found[3] != old:
			return "", "", "", ErrGone
		case ran == "nobody":
			next = old
		}
	}
	name, err = q.step(ctx, renameStep, from.hash(), earlier.move, old, next).Text()
	if err == nil && name == "" {
		err = ErrGone
	}
	return name, found[1], found[2], err
}
