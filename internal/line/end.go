package line

import (
	"context"
	"crypto/rand"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/rediswire"
)

var (
	//go:embed lua/end.lua
	endSource string

	endScript = redis.NewScript(rediswire.Compose(ends.Functions, composed(endSource)))
)

// Ended and Told are what [Engine.Cancel] and [Engine.Drop] return for a task that they have ended, and Cancel for one whose run it
// has told.
const (
	Ended = "ended"
	Told  = "told"
)

// ending is how a task is to end that does not run.
type ending struct {
	added string // to the message of a task that is archived; empty to delete the task
	word  string // for the run of an active task; empty to leave it alone
	only  string // the key for which the task must wait; empty for any task
	end   ends.End
}

// end ends a task that does not run, or leaves word for its run. Then it removes the task from all waiters and its sequence, and
// wakes the next task: nobody else does, when no task holds the key. run is the name of the run, if there is one.
//
// The task ends first, and only if it does not run. The entry that is left is that of a task that is gone, which a wake skips. In
// the other order a crash, or a task that is about to park, would leave a task that no wake finds.
func (e *Engine) end(ctx context.Context, t Task, how ending) (what, run string, err error) {
	fields, err := e.client.HMGet(ctx, t.Hash(), asynqwire.UniqueField, WaitField, SequenceField, asynqwire.StateField).Result()
	if err != nil {
		return "", "", err
	}
	keys := []string{
		t.Hash(), asynqwire.Pending(t.Queue), asynqwire.Retry(t.Queue), asynqwire.Scheduled(t.Queue), asynqwire.Archived(t.Queue),
		ends.HeardKey(t.Queue), ends.ArchivedMarks(t.Queue),
	}
	if unique, _ := fields[0].(string); unique != "" {
		keys = append(keys, unique)
	}
	now := time.Now()
	end := ends.Mark{End: how.end, Queue: t.Queue, ID: t.ID, Run: rand.Text(), At: now}
	args := []any{t.ID, how.added, now.Unix(), how.word, "", "", end.String(), how.end.Cause}
	if how.only != "" {
		args[4], args[5] = e.names.Waiters(how.only), e.names.Sequence(how.only)
	}
	reply, err := e.runSettled(ctx, endScript, keys, args...).StringSlice()
	switch {
	case err != nil:
		return "", "", err
	case len(reply) == 2 && reply[0] == Told:
		return Told, reply[1], nil
	case len(reply) == 2 && reply[0] == Ended:
		mark, _ := fields[2].(string)
		e.left(ctx, t, ParseWait(fields[1]), mark, reply[1] == "pending")
		return Ended, "", nil
	case len(reply) == 1:
		return reply[0], "", nil
	}
	return "", "", unexpected(reply)
}

// left removes the entries of a task that has ended without a run, and wakes the task behind it. woken says that it may have been
// woken.
func (e *Engine) left(ctx context.Context, t Task, w Wait, mark string, woken bool) {
	sets := []string{e.names.Index(t.Queue)}
	for _, key := range w.Keys {
		sets = append(sets, e.names.Waiters(key))
	}
	for _, set := range sets {
		if err := e.client.ZRem(ctx, set, t.Entry()).Err(); err != nil {
			e.log.WarnContext(ctx, "the entry of a task that has ended is left among the waiters; wakes skip it", "error", err)
		}
	}
	if err := e.wakeBehind(ctx, t, w, mark, woken); err != nil {
		e.log.WarnContext(ctx, "the task behind one that has ended was not woken; its timer will bring it back", "error", err)
	}
}

// wakeBehind wakes the head of the sequence that a task has left, or the next waiter in place of one that may have been woken.
func (e *Engine) wakeBehind(ctx context.Context, t Task, w Wait, mark string, woken bool) error {
	if key, ordered := SequenceOf(mark); ordered {
		left, err := e.Remove(ctx, t, key)
		if err == nil && len(left.Next) > 0 {
			_, err = e.WakeTask(ctx, key, left.Next[0])
		}
		return err
	}
	key, waits := w.Key()
	if !waits || !woken {
		return nil
	}
	next, err := e.Wake(ctx, key, WakeOptions{})
	e.repaired(key, next, false)
	return err
}
