package delayqueue

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
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
//     Those whose promotion fails are put back in line.
//
// A waiter whose queue's slot moves from one node to another is passed over in step 2, and stays in line: the wake goes to one behind it, or when there
// is none, is tried again until the slot has arrived. One whose slot begins to move after that is put back by step 4.
//
// A task that step 4 finds active came back after step 2, that is, after the release that it is woken for: by its timer, or because another
// wake had it first. It tries the key by itself, and so the wake is done; it is in no line until it is refused again, when it takes its old
// place. If it was refused again before step 3, then it is that entry which step 3 has taken out: it is put back, and the wake is tried
// again once the task has parked. One that is gone, or waits in another line by now, passes the wake on to the next.
func (q *Queue) wakeInSteps(ctx context.Context, c call) (outcome string, w Woken, err error) {
	if c.leaver != "" {
		if c.leaver, err = q.leave(ctx, c.leaver); err != nil {
			return "", w, err
		}
	}
	size, passed, done, blocked := c.most, 0, 0, false
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
		blocked = blocked || choice.moving
		if len(choice.out) > 0 {
			n, again, err := q.takeAndPromote(ctx, c, choice, &w)
			done += n
			choice.busy = choice.busy || again
			switch {
			case moving(err):
				return "moving", w, nil
			case err != nil:
				return "", w, err
			}
		}
		switch {
		case done >= c.most, done > 0 && (choice.busy || choice.end(entries, size)):
			return "woken", w, nil
		case choice.busy:
			return "busy", w, nil
		case choice.end(entries, size):
			switch {
			case blocked:
				return "moving", w, nil
			case c.pass && passed > 0:
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
	out     []string          // to be taken out of the line, and woken if they can be
	parked  map[string]string // when each of them was last parked
	refused map[string]string // how often each of them was refused
	place   map[string]string // where each of them stands
	passed  int               // waiters that it passes over
	moving  bool              // one of these was, because its slot moves
	looked  int               // how many it has decided upon
	busy    bool              // the next one is about to park
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
	looks := make([]scriptCall, 0, len(entries)+1)
	for _, entry := range entries {
		looks = append(looks, scriptCall{checkStep, taskOf(entry).listed(), []any{c.registry}})
	}
	replies := q.pipeline(ctx, append(looks, scriptCall{scoresStep, []string{q.index}, anys(entries)}))
	scores, err := replies[len(entries)].StringSlice()
	if err != nil {
		return choice{}, err
	}
	if len(scores) != len(entries) {
		return choice{}, unexpected(scores)
	}
	found := choice{parked: map[string]string{}, refused: map[string]string{}, place: map[string]string{}}
	var marks []step
	for i, entry := range entries {
		reply, err := replies[i].StringSlice()
		switch {
		case moving(err):
			found.moving = true
			found.passed++
			found.looked++
			continue
		case err != nil:
			return choice{}, err
		case len(reply) != 4:
			return choice{}, unexpected(reply)
		}
		verdict := reply[0]
		if verdict == "active" || verdict == "passed" {
			if c.only != "" || verdict == "active" && !c.pass {
				found.busy = true
				break
			}
			if verdict == "active" {
				marks = append(marks, step{markStep, looks[i].keys[0], nil})
			}
			found.passed++
			found.looked++
			continue
		}
		found.looked++
		found.out = append(found.out, entry)
		found.refused[entry], found.place[entry] = reply[2], reply[3]
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
// to w, and returns how many try the key now. again says that one was put back, since it is about to park.
func (q *Queue) takeAndPromote(ctx context.Context, c call, found choice, w *Woken) (done int, again bool, err error) {
	left, mine, err := numbered(q.step(ctx, discardStep, c.registry, anys(found.out)...))
	if err != nil {
		return 0, false, err
	}
	w.Left = left
	if len(mine) == 0 {
		return 0, false, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), promoteTimeout)
	defer cancel()
	calls := make([]scriptCall, 0, len(mine)+1)
	now := time.Now().UnixNano()
	for _, entry := range slices.Backward(mine) { // the first of them comes last, to the very head
		calls = append(calls, scriptCall{promoteStep, taskOf(entry).listed(), []any{c.registry, entry, now, found.refused[entry]}})
	}
	replies := q.pipeline(ctx, append(calls, scriptCall{strikeStep, []string{q.index}, pairs(mine, found.parked)}))
	err = replies[len(mine)].Err()
	for i, entry := range mine {
		verdict, failed := replies[len(mine)-1-i].StringSlice()
		switch {
		case failed != nil:
			err = errors.Join(failed, q.putBack(ctx, c.registry, entry, found.place[entry]), q.enterBack(ctx, entry, found.parked[entry]), err)
		case len(verdict) == 1 && verdict[0] == "woken":
			w.Tasks = append(w.Tasks, taskOf(entry))
			done++
		case len(verdict) == 1 && (verdict[0] == "active" || verdict[0] == "passed"):
			done++
		case len(verdict) == 2:
			again = true
			err = errors.Join(err, q.putBack(ctx, c.registry, entry, verdict[1]))
		}
	}
	return done, again, err
}

// putBack puts an entry back in line, unless its task has done so.
func (q *Queue) putBack(ctx context.Context, registry, entry, place string) error {
	score, err := strconv.ParseFloat(place, 64)
	if err != nil {
		return unexpected(place)
	}
	return q.client.ZAddNX(ctx, registry, redis.Z{Score: score, Member: entry}).Err()
}

// enterBack puts an entry back in the index, as of the time when it was parked; one that was not in it stays out.
func (q *Queue) enterBack(ctx context.Context, entry, parked string) error {
	if parked == "" {
		return nil
	}
	return q.putBack(ctx, q.index, entry, parked)
}
