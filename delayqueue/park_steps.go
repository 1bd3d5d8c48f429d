package delayqueue

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// parkInSteps does on a Cluster what park.lua does at once. The order makes every point at which it may end harmless:
//
//  1. The conflict is noted in the task's record. After that alone: one conflict more, and a task whose timer brings it back.
//  2. When the task stood in another line it leaves that, and passes on the wake that it may have had there; only then its record
//     names the new line. In between: the next Park passes on a wake too many, which wakes a task too early.
//  3. The index. After that alone: a task too many counts, until it is parked again, ends, or is found to be gone.
//  4. The line. Now it waits; what may follow is its exact place, without which a later conflict puts it by the time of its first.
//
// At a bound the entries are taken out before the record, which knows of them, is cleared or loses its place.
func (q *Queue) parkInSteps(ctx context.Context, t Task, line string, conflict []any, bounds Bounds, ttl int64) (Place, error) {
	n, err := q.note(ctx, t, line, conflict)
	if err != nil {
		return Place{}, err
	}
	if n.before != "" && n.before != line {
		_, out, err := numbered(q.step(ctx, discardStep, n.before, t.member()))
		if err != nil {
			return Place{}, err
		}
		if len(out) == 0 {
			q.passOn(ctx, n.before)
		}
		if n.Bound == NoBound {
			if err := q.step(ctx, standStep, t.hash(), line, n.place).Err(); err != nil {
				return Place{}, err
			}
		}
	}
	if n.Bound == NoBound {
		entered, err := q.enter(ctx, t, n.now, bounds.Total, ttl)
		if err != nil {
			return Place{}, err
		}
		if !entered {
			n.Bound = TotalBound
		}
	}
	if n.Bound == NoBound {
		waiters, ahead, joined, err := q.register(ctx, t, line, n, bounds.Waiters, ttl)
		if err != nil {
			return Place{}, err
		}
		if joined {
			n.Waiters, n.Ahead = waiters, ahead
			return n.Place, nil
		}
		n.Bound = WaitersBound
	}
	return q.refuse(ctx, t, line, n)
}

// noted is the reply of the note step.
type noted struct {
	Place
	place, before, now string
}

// gone is the bound of a task that was deleted.
const gone Bound = "gone"

// note counts a conflict.
func (q *Queue) note(ctx context.Context, t Task, line string, conflict []any) (n noted, err error) {
	reply, err := q.step(ctx, noteStep, t.hash(), append([]any{line}, conflict...)...).Slice()
	if err != nil {
		return n, err
	}
	texts, ok := [6]string{}, len(reply) == 6
	for i := range reply[:min(len(reply), 6)] {
		switch value := reply[i].(type) {
		case int64:
			n.Count = int(value)
		case string:
			texts[i] = value
		default:
			ok = false
		}
	}
	first, err := strconv.ParseInt(texts[2], 10, 64)
	if !ok || err != nil {
		return n, unexpected(reply)
	}
	n.Bound, n.First = Bound(texts[0]), time.UnixMicro(first)
	n.place, n.before, n.now = texts[3], texts[4], texts[5]
	return n, nil
}

// enter adds a task to the index of all parked tasks, and reports whether there was room.
func (q *Queue) enter(ctx context.Context, t Task, now string, most int, ttl int64) (bool, error) {
	for look := 0; ; look++ {
		others, err := q.step(ctx, enterStep, q.index, t.member(), now, most, ttl).StringSlice()
		if err != nil || len(others) == 0 || look == 1 {
			return len(others) == 0, err
		}
		entries := make([]string, 0, len(others)/2)
		scores := map[string]string{}
		for i := 0; i+1 < len(others); i += 2 {
			entries = append(entries, others[i])
			scores[others[i]] = others[i+1]
		}
		ended, err := q.ended(ctx, entries)
		if err != nil {
			return false, err
		}
		if err := q.step(ctx, strikeStep, q.index, pairs(ended, scores)...).Err(); err != nil {
			return false, err
		}
	}
}

// register puts a task in line, and reports how many wait, how many of them before it, and whether there was room.
func (q *Queue) register(ctx context.Context, t Task, line string, n noted, most int, ttl int64) (waiters, ahead int, joined bool, err error) {
	behind := 0
	if n.Count == 1 {
		behind = 1
	}
	for look := 0; ; look++ {
		waiters, rest, err := numbered(q.step(ctx, joinStep, line, t.member(), n.place, behind, most, ttl))
		switch {
		case err != nil:
			return 0, 0, false, err
		case len(rest) < 2:
			return 0, 0, false, unexpected(rest)
		case len(rest) == 2:
			if rest[0] != n.place {
				err = q.step(ctx, standStep, t.hash(), line, rest[0]).Err()
			}
			ahead, _ = strconv.Atoi(rest[1])
			return waiters, ahead, true, err
		case look == 1:
			return waiters, 0, false, nil
		}
		if err := q.prune(ctx, line, rest[2:]); err != nil {
			return 0, 0, false, err
		}
	}
}

// prune takes the tasks that have ended out of a line and the index.
func (q *Queue) prune(ctx context.Context, line string, entries []string) error {
	ended, err := q.ended(ctx, entries)
	if err != nil || len(ended) == 0 {
		return err
	}
	scores, err := q.scores(ctx, ended)
	if err != nil {
		return err
	}
	_, err = q.together(ctx, []step{
		{discardStep, line, anys(ended)},
		{strikeStep, q.index, pairs(ended, scores)},
	})
	return err
}

// ended returns the entries whose tasks have gone for good.
func (q *Queue) ended(ctx context.Context, entries []string) (ended []string, err error) {
	looks := make([]step, 0, len(entries))
	for _, entry := range entries {
		looks = append(looks, step{endedStep, taskOf(entry).hash(), nil})
	}
	replies, err := q.together(ctx, looks)
	if err != nil {
		return nil, err
	}
	for i, reply := range replies {
		if reply.Val() == int64(1) {
			ended = append(ended, entries[i])
		}
	}
	return ended, nil
}

// scores returns when each of these entries was last parked; those that are not in the index are missing.
func (q *Queue) scores(ctx context.Context, entries []string) (map[string]string, error) {
	found, err := q.step(ctx, scoresStep, q.index, anys(entries)...).StringSlice()
	if err != nil {
		return nil, err
	}
	if len(found) != len(entries) {
		return nil, unexpected(found)
	}
	scores := map[string]string{}
	for i, score := range found {
		if score != "" {
			scores[entries[i]] = score
		}
	}
	return scores, nil
}

// refuse takes a task at a bound out of the line, the index and, last, its record.
func (q *Queue) refuse(ctx context.Context, t Task, line string, n noted) (Place, error) {
	waiters, _, err := numbered(q.step(ctx, discardStep, line, t.member()))
	if err == nil {
		err = q.client.ZRem(ctx, q.index, t.member()).Err()
	}
	if n.Bound == gone {
		return Place{}, errors.Join(ErrGone, err)
	}
	if err == nil {
		step := forgetStep
		if n.Bound == WaitersBound || n.Bound == TotalBound {
			step = unplaceStep
		}
		err = q.step(ctx, step, t.hash()).Err()
	}
	if err != nil {
		return Place{}, err
	}
	n.Waiters = waiters
	return n.Place, nil
}

// pairs returns each entry that has a score, and the score.
func pairs(entries []string, scores map[string]string) []any {
	args := make([]any, 0, 2*len(entries))
	for _, entry := range entries {
		if score, ok := scores[entry]; ok {
			args = append(args, entry, score)
		}
	}
	return args
}

func anys(entries []string) []any {
	args := make([]any, len(entries))
	for i, entry := range entries {
		args[i] = entry
	}
	return args
}
