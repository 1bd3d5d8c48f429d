package delayqueue

import (
	"context"
	"slices"
	"time"
)

// promoteTimeout is how long a waiter that was taken out of its line may take to be promoted, even when the caller has given up.
const promoteTimeout = 2 * time.Second

// wakeInSteps does on a Cluster what wake.lua does at once. The order makes every point at which it may end harmless:
//
//  1. The leaver's record is cleared, and its entry taken out of the index and the line. After part of that alone: an entry is left over,
//     which a wake, or a look at a full index, finds to be gone.
//  2. A look at the line, and at the state of those in it. This changes nothing: an active one is about to park, and is tried again.
//  3. Those that are to be woken are taken out of the line. Of two wakes one alone has each: nobody is counted by both.
//  4. They are promoted, and struck off the index. A wake that ends before this leaves tasks that are in no line: their timers bring them back.
//
// A task that step 4 finds active came back by its timer after step 2, that is, after the release that it is woken for. It tries the
// key by itself, and so the wake is done; it is in no line until it is refused again, when it takes its old place. One that is gone, or waits
// in another line by now, passes the wake on to the next.
func (q *Queue) wakeInSteps(ctx context.Context, c call) (outcome string, w Woken, err error) {
	if c.leaver != "" {
		if c.leaver, err = q.leave(ctx, c.leaver); err != nil {
			return "", w, err
		}
	}
	size, passed, done := c.most, 0, 0
	for {
		left, entries, err := numbered(q.step(ctx, lookStep, c.registry, c.leaver, c.only, passed, size))
		if err != nil {
			return "", w, err
		}
		w.Left, c.leaver = left, ""
		choice, err := q.choose(ctx, c, entries, c.most-done)
		if err != nil {
			return "", w, err
		}
		passed += choice.passed
		if len(choice.out) > 0 {
			n, err := q.takeAndPromote(ctx, c, choice, &w)
			done += n
			if err != nil {
				return "", w, err
			}
		}
		switch {
		case done >= c.most, done > 0 && (choice.busy || choice.end(entries, size)):
			return "woken", w, nil
		case choice.busy:
			return "busy", w, nil
		case choice.end(entries, size):
			if c.pass && passed > 0 {
				return "busy", w, nil
			}
			return "none", w, nil
		}
		size = wakeLooks
	}
}

// leave clears the record of the task that gives the key back. It returns its entry when that must be taken out of the line.
func (q *Queue) leave(ctx context.Context, entry string) (string, error) {
	t, err := parseMember(entry)
	if err != nil {
		return "", err
	}
	reply, err := q.step(ctx, leaveStep, t.hash()).Int64Slice()
	switch {
	case err != nil:
		return "", err
	case len(reply) != 2:
		return "", unexpected(reply)
	case reply[0] == 0:
		return "", nil
	case reply[1] > 0: // it was parked
		err = q.client.ZRem(ctx, q.index, entry).Err()
	}
	return entry, err
}

// choice is what a wake will do with the waiters that it has looked at.
type choice struct {
	out    []string          // to be taken out of the line, and woken if they can be
	parked map[string]string // when each of them was last parked
	passed int               // active waiters that it passes over
	looked int               // how many it has decided upon
	busy   bool              // the next one is about to park
}

// end reports whether nobody is in line behind those that it has decided upon.
func (c choice) end(entries []string, size int) bool {
	return c.looked == len(entries) && len(entries) < size
}

// choose looks at the state of waiters, and decides upon them in the order of the line until it has wanted ones.
func (q *Queue) choose(ctx context.Context, c call, entries []string, wanted int) (choice, error) {
	if len(entries) == 0 {
		return choice{}, nil
	}
	looks := make([]step, 0, len(entries)+1)
	for _, entry := range entries {
		looks = append(looks, step{checkStep, taskOf(entry).hash(), []any{c.registry}})
	}
	replies, err := q.together(ctx, append(looks, step{scoresStep, q.index, anys(entries)}))
	if err != nil {
		return choice{}, err
	}
	scores, err := replies[len(entries)].StringSlice()
	if err != nil || len(scores) != len(entries) {
		return choice{}, unexpected(scores)
	}
	found := choice{parked: map[string]string{}}
	var marks []step
	for i, entry := range entries {
		reply, err := replies[i].StringSlice()
		if err != nil || len(reply) != 2 {
			return choice{}, unexpected(replies[i].Val())
		}
		verdict := reply[0]
		if verdict == "active" || verdict == "passed" {
			if c.only != "" || verdict == "active" && !c.pass {
				found.busy = true
				break
			}
			if verdict == "active" {
				marks = append(marks, step{markStep, looks[i].key, nil})
			}
			found.passed++
			found.looked++
			continue
		}
		found.looked++
		found.out = append(found.out, entry)
		if scores[i] != "" && verdict != "elsewhere" {
			found.parked[entry] = scores[i]
		}
		if verdict == "here" {
			wanted--
		}
		if wanted == 0 {
			break
		}
	}
	if len(marks) > 0 {
		_, err = q.together(ctx, marks)
	}
	return found, err
}

// takeAndPromote takes waiters out of the line, and moves those of them that this call has got to the heads of their queues. It adds them
// to w, and returns how many try the key now.
func (q *Queue) takeAndPromote(ctx context.Context, c call, found choice, w *Woken) (done int, err error) {
	left, mine, err := numbered(q.step(ctx, discardStep, c.registry, anys(found.out)...))
	if err != nil {
		return 0, err
	}
	w.Left = left
	if len(mine) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), promoteTimeout)
	defer cancel()
	steps := make([]step, 0, len(mine)+1)
	tasks := make([]Task, 0, len(mine))
	now := time.Now().UnixNano()
	for _, entry := range slices.Backward(mine) { // the first of them comes last, to the very head
		t := taskOf(entry)
		tasks = append(tasks, t)
		steps = append(steps, step{promoteStep, t.hash(), []any{c.registry, entry, now}})
	}
	replies, err := q.together(ctx, append(steps, step{strikeStep, q.index, pairs(mine, found.parked)}))
	for i, t := range slices.Backward(tasks) {
		switch replies[i].Val() {
		case "woken":
			w.Tasks = append(w.Tasks, t)
			done++
		case "active", "passed":
			done++
		}
	}
	return done, err
}
