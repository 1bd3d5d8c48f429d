package line

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Join adds a task to the sequence of key, unless it is there, and returns its position. The task stays until
// [Engine.Remove] removes it, or until a task behind it finds that it is no head (head.lua): deleted, archived or
// completed in asynq, in the sequence of another key, failed unless it is Strict, or waiting although its deadline has
// passed, after which asynq does not call its handler. A task that was deleted and enqueued again with the same ID is
// another task, and joins at the end. If asynq ends a run before the handler was called, because the deadline has passed,
// the Engine removes the task and wakes the next one. Only the first task may take the key's lock. So of two tasks the
// one that joined first runs first, in whichever queues and processes they are. A sequence lives as long as its tasks.
//
// It makes one call to Redis when the task is first, otherwise two, and two more for each hundred tasks that are gone;
// on a Cluster one more.
func (e *Engine) Join(ctx context.Context, t Task, key string, opts JoinOptions) (Position, error) {
	how, err := e.enlist(ctx, t, key, howOf(opts))
	if err != nil {
		return Position{}, err
	}
	var gone []member
	looks := 1 // the first is rarely gone
	for range goneCalls {
		entry, err := e.join(ctx, t, key, opts, how, looks, gone)
		if err != nil || entry.ahead == 0 {
			return Position{At: entry.at}, err
		}
		all, err := e.look(ctx, key, entry.front)
		if err != nil {
			return Position{}, err
		}
		live := slices.IndexFunc(all, taskState.live)
		if live == 0 {
			return Position{
				At: entry.at, Ahead: entry.ahead, First: all[0].task, FirstState: all[0].state, FirstAgain: all[0].due,
				FirstAt: entry.firstAt, FirstParked: entry.firstParked, FirstFailed: all[0].verdict == headFailed,
				FirstLease: all[0].lease, FirstLost: all[0].verdict == headLost, FirstBegun: entry.firstBegun,
			}, nil
		}
		if gone = entry.front; live > 0 {
			gone = gone[:live]
		}
		if !e.Together(t.Queue, key) {
			how = "0"
		}
		looks = goneBatch
	}
	return Position{}, fmt.Errorf("delayqueue: task %s joins: the sequence still has tasks that are gone after %d looks",
		t, goneCalls)
}

// entry is a task's entry in a sequence.
type entry struct {
	at          time.Time
	ahead       int       // -1 when the task has not joined
	parked      bool      // the task was parked until this call
	firstAt     time.Time // when the first one joined, and whether it is parked
	firstParked bool
	firstBegun  bool
	front       []member // the first of the tasks ahead
}

// howOf returns how a task joins its sequence when it runs (head.lua).
func howOf(opts JoinOptions) string {
	if opts.Strict {
		return "strict"
	}
	return "fifo"
}

// enlist notes in a task's hash that it is in the sequence of key, as a step of its own on a Cluster. It returns what
// sequence_join.lua is told of it. The note comes first: an entry whose task does not name the sequence is left over.
func (e *Engine) enlist(ctx context.Context, t Task, key, how string) (string, error) {
	if e.Together(t.Queue, key) {
		return how, nil
	}
	r := replyOf(e.step(ctx, enlistStep, t.Hash(), e.names.Sequence(key), how))
	_, fresh := r.text(), r.number()
	if r.err != nil {
		return "", fmt.Errorf("delayqueue: task %s joins the sequence: %w", t, r.err)
	}
	return strconv.Itoa(fresh), nil
}

// join removes tasks that are gone from a sequence, and adds a task to it, which was parked until then when its run begins.
func (e *Engine) join(ctx context.Context, t Task, key string, opts JoinOptions, how string, looks int,
	gone []member,
) (at entry, err error) {
	names := []string{e.names.Sequence(key), e.names.Waiters(key)}
	together := e.Together(t.Queue, key)
	if together {
		names = append(names, t.Hash(), e.names.Index(t.Queue))
	}
	before := ""
	if !opts.At.IsZero() {
		before = strconv.FormatInt(opts.At.UnixMicro(), 10)
	}
	args := append([]any{t.Entry(), before, looks, number(opts.Begins), number(opts.Works), how}, pairsOf(gone)...)
	r := replyOf(sequenceJoinScript.Run(ctx, e.client, names, args...))
	at.ahead, at.at, at.parked = r.number(), r.moment(), r.yes()
	at.firstAt, at.firstParked, at.firstBegun = r.moment(), r.yes(), r.yes()
	at.front = r.members()
	if err = r.err; err == nil && at.parked && !together {
		err = e.client.ZRem(ctx, e.names.Index(t.Queue), t.Entry()).Err()
	}
	if err != nil {
		return entry{}, fmt.Errorf("delayqueue: task %s joins the sequence: %w", t, err)
	}
	return at, nil
}
