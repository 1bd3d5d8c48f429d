package line

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/pipeline"
)

// mostPassed is about how many waiters that cannot run one wake skips: see wake.lua.
const mostPassed = 10_000

// promoteTimeout is how long it may take to promote a waiter that was removed from the waiters, even when the caller
// has given up.
const promoteTimeout = 2 * time.Second

// wakeInSteps does on a Cluster what wake.lua does. The order of the steps makes it harmless to end after any of them:
//
//  1. The leaver's record is cleared, and its entry removed from the index and the waiters. After a part of that, an
//     entry is left over, which a wake, or a check of a full index, finds to be gone.
//  2. The waiters and their states are read. This changes nothing.
//  3. Those that are to be woken are removed from the waiters and the index. Of two wakes only one has each of them, so
//     no task counts for both.
//  4. They are promoted. If the wake ends before this step, their timers bring the tasks back. Those whose promotion
//     fails are put back. The next waiter has its timer shortened in the background; otherwise it stays long.
//
// A waiter whose queue's slot is moving to another node is skipped in step 2 and stays. The wake goes to a waiter
// behind it; when there is none, it is retried until the slot has arrived. If the slot begins to move later, step 4 puts
// the waiter back.
//
// If step 4 finds that a task runs, is gone, or waits for another key by now, the wake goes to the next waiter.
func (e *Engine) wakeInSteps(ctx context.Context, c call) (w Woken, err error) {
	w.inSteps = true
	if c.leaver != "" {
		if c.leaver, err = e.leave(ctx, c.leaver); err != nil {
			return w, err
		}
	}
	held := map[string]bool{}
	for _, queue := range c.held {
		held[queue] = true
	}
	if c.only != "" {
		held = nil
	}
	anyHeld, moves, passed := false, false, 0
	for size := c.most; ; size = wakeLooks {
		r := replyOf(e.step(ctx, lookStep, c.waiters, c.leaver, c.only, passed, size))
		left, entries := r.number(), r.texts(len(r.rest))
		if r.err != nil {
			return w, r.err
		}
		w.Left, c.leaver = left, ""
		looks, err := e.lookAt(ctx, c.waiters, entries, held)
		if err != nil {
			return w, err
		}
		var out []look
		seen, wanted := 0, c.most-len(w.Tasks)
		for ; seen < len(looks) && wanted > 0; seen++ {
			switch at := looks[seen]; at.verdict {
			case "held":
				anyHeld, passed, held[taskOf(at.entry).Queue] = true, passed+1, true
			case "moving":
				moves, passed = true, passed+1
			case "here":
				wanted--
				fallthrough
			default:
				out = append(out, at)
			}
		}
		if len(out) > 0 {
			if err = e.takeAndPromote(ctx, c.waiters, out, &w); moving(err) {
				w.Pending = true
				return w, nil
			} else if err != nil {
				return w, err
			}
		}
		end := seen == len(entries) && len(entries) < size
		switch {
		case len(w.Tasks) >= c.most, len(w.Tasks) > 0 && end:
			return w, nil
		case !end && passed < mostPassed:
		case moves:
			w.Pending = true
			return w, nil
		case anyHeld && c.hope:
			return w, e.hope(ctx, c.waiters)
		default:
			return w, nil
		}
	}
}

// leave clears the record of the task that releases the key. It returns its entry when that must be removed from the
// waiters.
func (e *Engine) leave(ctx context.Context, entry string) (string, error) {
	t, err := ParseEntry(entry)
	if err != nil {
		return "", err
	}
	r := replyOf(e.step(ctx, leaveStep, t.Hash()))
	mustGo, parked := r.yes(), r.number() > 0
	switch {
	case r.err != nil || !mustGo:
		return "", r.err
	case parked:
		err = e.client.ZRem(ctx, e.names.Index(t.Queue), entry).Err()
	}
	return entry, err
}

// Leave removes a task whose run ends from the waiters of a key, as a wake does of which it is the Leaver, and wakes none.
func (e *Engine) Leave(ctx context.Context, key string, t Task) error {
	entry, err := e.leave(ctx, t.Entry())
	if err == nil && entry != "" {
		err = e.client.ZRem(ctx, e.names.Waiters(key), entry).Err()
	}
	if err != nil {
		return fmt.Errorf("delayqueue: task %s leaves the waiters: %w", t, err)
	}
	return nil
}

// look is a waiter, and what the check step has found out about it.
type look struct {
	entry, verdict, state string
	place                 int64
}

// lookAt checks waiters. Those of the queues in held are held without a check, and so are those of paused queues. When
// held is nil, neither matters. The verdict on a waiter whose slot moves is "moving".
func (e *Engine) lookAt(ctx context.Context, waiters string, entries []string, held map[string]bool) (looks []look,
	err error,
) {
	var calls []pipeline.ScriptCall
	for _, entry := range entries {
		t := taskOf(entry)
		if held[t.Queue] {
			continue
		}
		names := t.listed()
		if held != nil && t.Queue != "" {
			names = append(names, asynqwire.Paused(t.Queue))
		}
		calls = append(calls, pipeline.ScriptCall{Script: checkStep, Keys: names, Args: []any{waiters, time.Now().UnixNano()}})
	}
	replies := e.pipeline(ctx, calls)
	for _, entry := range entries {
		queue := taskOf(entry).Queue
		at := look{entry: entry, verdict: "held"}
		if !held[queue] {
			r := replyOf(replies[0])
			replies = replies[1:]
			if moving(r.err) {
				at.verdict = "moving"
			} else if at.verdict, at.state, at.place = r.text(), r.text(), ParseWait(r.text()).Place; r.err != nil {
				err = errors.Join(err, r.err)
			}
		}
		looks = append(looks, at)
	}
	return looks, err
}

// hope puts the first waiter that could run if its queue were served at the head of that queue, and leaves it among the
// waiters. One that is pending is there already.
func (e *Engine) hope(ctx context.Context, waiters string) error {
	r := replyOf(e.step(ctx, lookStep, waiters, "", "", 0, wakeLooks))
	_, entries := r.number(), r.texts(len(r.rest))
	if r.err != nil {
		return r.err
	}
	looks, err := e.lookAt(ctx, waiters, entries, nil)
	for _, at := range looks {
		if at.verdict == "here" && err == nil {
			if at.state != "pending" {
				err = promoteStep.Run(ctx, e.client, taskOf(at.entry).listed(), waiters, at.entry,
					time.Now().UnixNano()).Err()
			}
			break
		}
	}
	return err
}

// takeAndPromote removes waiters from the set and the index, moves those that this call has removed to the heads of
// their queues, and adds them to w.
func (e *Engine) takeAndPromote(ctx context.Context, waiters string, out []look, w *Woken) error {
	var entries []any
	parked, place := map[string][]any{}, map[string]int64{} // by their indexes, and by themselves
	for _, at := range out {
		entries = append(entries, at.entry)
		place[at.entry] = at.place
		if at.verdict != "elsewhere" {
			index := e.names.Index(taskOf(at.entry).Queue)
			parked[index] = append(parked[index], at.entry)
		}
	}
	calls := []pipeline.ScriptCall{{Script: discardStep, Keys: []string{waiters}, Args: entries}}
	for index, some := range parked {
		calls = append(calls, pipeline.ScriptCall{Script: discardStep, Keys: []string{index}, Args: some})
	}
	replies := e.pipeline(ctx, calls)
	r := replyOf(replies[0])
	left, mine := r.number(), r.texts(len(r.rest))
	if r.err != nil {
		return r.err
	}
	w.Left = left
	if len(mine) == 0 {
		return nil
	}
	var err error
	for _, reply := range replies[1:] {
		err = errors.Join(err, reply.Err())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), promoteTimeout)
	defer cancel()
	calls = nil
	now := time.Now().UnixNano()
	for _, entry := range slices.Backward(mine) { // the first one last, so that it is at the very head
		calls = append(calls, pipeline.ScriptCall{Script: promoteStep, Keys: taskOf(entry).listed(), Args: []any{waiters, entry, now}})
	}
	replies = e.pipeline(ctx, append(calls, pipeline.ScriptCall{Script: lookStep, Keys: []string{waiters}, Args: []any{"", "", 0, 1}}))
	for i, entry := range mine {
		verdict, failed := replies[len(mine)-1-i].Text()
		switch {
		case failed != nil:
			err = errors.Join(failed, e.putBack(ctx, waiters, entry, place[entry]), err)
		case verdict == "woken":
			w.Tasks = append(w.Tasks, taskOf(entry))
		case verdict == "gone", verdict == "overdue":
			w.gone = true
		}
	}
	if next := replyOf(replies[len(mine)]); len(w.Tasks) > 0 && len(next.rest) > 1 {
		entry, _ := next.rest[1].(string)
		e.background(e.closing, followUpLimit, func(ctx context.Context) { e.hasten(ctx, entry) })
	}
	return err
}

// hasten shortens the timer of the next waiter: if the woken tasks die, it must not wait as long as it did while others
// stood before it.
func (e *Engine) hasten(ctx context.Context, entry string) {
	err := hastenStep.Run(ctx, e.client, taskOf(entry).listed(), entry, time.Now().UnixNano()).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		e.log.WarnContext(ctx, "the next waiter keeps its long timer", "error", err)
	}
}

// putBack puts an entry back into the waiters and the index, unless its task has joined again.
func (e *Engine) putBack(ctx context.Context, waiters, entry string, place int64) error {
	_, err := e.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.ZAddNX(ctx, waiters, redis.Z{Score: float64(place), Member: entry})
		pipe.ZAddNX(ctx, e.names.Index(taskOf(entry).Queue), redis.Z{Score: float64(time.Now().UnixMicro()), Member: entry})
		return nil
	})
	return err
}
