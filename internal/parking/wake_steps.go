package parking

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// mostPassed is how many waiters that cannot run one wake passes over, about: see wake.lua.
const mostPassed = 10_000

// promoteTimeout is how long a waiter that was taken out of its line may take to be promoted, even when the caller has
// given up.
const promoteTimeout = 2 * time.Second

// wakeInSteps does on a Cluster what wake.lua does at once. The order makes every point at which it may end harmless:
//
//  1. The leaver's record is cleared, and its entry taken out of the index and the line. After part of that alone: an
//     entry is left over, which a wake, or a look at a full index, finds to be gone.
//  2. A look at the line, and at the state of those in it. This changes nothing.
//  3. Those that are to be woken are taken out of the line and the index. Of two wakes one alone has each: nobody is
//     counted by both.
//  4. They are promoted. A wake that ends before this leaves tasks that are in no line: their timers bring them back.
//     Those whose promotion fails are put back. The next in line has its timer shortened in the background; without
//     that it is long.
//
// A waiter whose queue's slot moves from one node to another is passed over in step 2, and stays in line: the wake goes
// to one behind it, or when there is none, is tried again until the slot has arrived. One whose slot begins to move
// after that is put back by step 4.
//
// A task that step 4 finds to run, to be gone or to wait in another line by now passes the wake on to the next.
func (e *Engine) wakeInSteps(ctx context.Context, c call) (w Woken, err error) {
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

// leave clears the record of the task that gives the key back. It returns its entry when that must be taken out of the
// line.
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
		err = e.client.ZRem(ctx, e.index, entry).Err()
	}
	return entry, err
}

// look is a waiter, and what the check step has found of it.
type look struct {
	entry, verdict, state, place string
}

// lookAt looks at waiters. Those of the queues in held are held without a look, and those of paused queues are held
// too; when held is nil, neither matters. Of one whose slot moves the verdict is moving.
func (e *Engine) lookAt(ctx context.Context, waiters string, entries []string, held map[string]bool) (looks []look,
	err error,
) {
	var calls []scriptCall
	for _, entry := range entries {
		t := taskOf(entry)
		if held[t.Queue] {
			continue
		}
		names := t.listed()
		if held != nil && t.Queue != "" {
			names = append(names, t.Prefix()+"paused")
		}
		calls = append(calls, scriptCall{checkStep, names, []any{waiters, time.Now().UnixNano()}})
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
			} else if at.verdict, at.state, at.place = r.text(), r.text(), r.text(); r.err != nil {
				err = errors.Join(err, r.err)
			}
		}
		looks = append(looks, at)
	}
	return looks, err
}

// hope puts the first in line that could run if its queue were worked on at the head of that queue, and leaves it in
// line. One that is pending is there already.
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

// takeAndPromote takes waiters out of the line and the index, moves those of them that this call has got to the heads
// of their queues, and adds these to w.
func (e *Engine) takeAndPromote(ctx context.Context, waiters string, out []look, w *Woken) error {
	var entries, parked []any
	place := map[string]string{}
	for _, at := range out {
		entries = append(entries, at.entry)
		place[at.entry] = at.place
		if at.verdict != "elsewhere" {
			parked = append(parked, at.entry)
		}
	}
	replies := e.pipeline(ctx, []scriptCall{
		{discardStep, []string{waiters}, entries},
		{discardStep, []string{e.index}, parked},
	})
	r := replyOf(replies[0])
	left, mine := r.number(), r.texts(len(r.rest))
	if r.err != nil {
		return r.err
	}
	w.Left = left
	if len(mine) == 0 {
		return nil
	}
	err := replies[1].Err()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), promoteTimeout)
	defer cancel()
	var calls []scriptCall
	now := time.Now().UnixNano()
	for _, entry := range slices.Backward(mine) { // the first of them comes last, to the very head
		calls = append(calls, scriptCall{promoteStep, taskOf(entry).listed(), []any{waiters, entry, now}})
	}
	replies = e.pipeline(ctx, append(calls, scriptCall{lookStep, []string{waiters}, []any{"", "", 0, 1}}))
	for i, entry := range mine {
		verdict, failed := replies[len(mine)-1-i].Text()
		switch {
		case failed != nil:
			err = errors.Join(failed, e.putBack(ctx, waiters, entry, place[entry]), err)
		case verdict == "woken":
			w.Tasks = append(w.Tasks, taskOf(entry))
		}
	}
	if next := replyOf(replies[len(mine)]); len(w.Tasks) > 0 && len(next.rest) > 1 {
		entry, _ := next.rest[1].(string)
		e.background(e.closing, followLimit, func(ctx context.Context) { e.hasten(ctx, entry) })
	}
	return err
}

// hasten has the next in line look for itself soon: if those who were woken die, it must not wait as long as it thought
// when others stood before it.
func (e *Engine) hasten(ctx context.Context, entry string) {
	err := hastenStep.Run(ctx, e.client, taskOf(entry).listed(), entry, time.Now().UnixNano()).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		e.log.WarnContext(ctx, "the next waiter keeps its long timer", "error", err)
	}
}

// putBack puts an entry back in line and in the index, unless its task has done so.
func (e *Engine) putBack(ctx context.Context, waiters, entry, place string) error {
	score, err := strconv.ParseFloat(place, 64)
	if err != nil {
		return unexpected(place)
	}
	_, err = e.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.ZAddNX(ctx, waiters, redis.Z{Score: score, Member: entry})
		pipe.ZAddNX(ctx, e.index, redis.Z{Score: float64(time.Now().UnixMicro()), Member: entry})
		return nil
	})
	return err
}
