package delayqueue

import (
	"context"
	"strconv"
	"time"
)

// parkInSteps does on a Cluster what park.lua does at once, but for the look at the lock. The order makes every point at which it may end harmless:
//
//  1. The task is put into the retry set, and the conflict noted. After that alone, its timer brings it back.
//  2. When the task stood in another line it leaves that, and passes on the wake that it may have had there. Without it, those in that line wait for
//     their timers, or until the task is parked again.
//  3. The index. After that alone: a task too many counts, until it is parked again, ends, or is found to be gone.
//  4. The line. Now it waits; what may follow is its exact place, without which a later conflict puts it by the time of its first, and the longer timer of
//     a task with others before it, without which it looks too early.
//
// A repeated call, after a lost reply, goes on after step 1.
func (q *Queue) parkInSteps(ctx context.Context, t Task, line string, opts ParkOptions) (Place, error) {
	n, err := q.suspend(ctx, t, line, opts)
	if err != nil {
		return Place{}, err
	}
	ttl := opts.idle()
	if n.before != "" && n.before != line {
		_, out, err := numbered(q.step(ctx, discardStep, n.before, t.member()))
		if err != nil {
			return Place{}, err
		}
		if len(out) == 0 {
			q.passOn(ctx, n.before)
		}
		if err := q.step(ctx, standStep, t.hash(), line, n.place).Err(); err != nil {
			return Place{}, err
		}
	}
	entered, err := q.enter(ctx, t, n.now, opts.Bounds.Total, ttl)
	if err != nil {
		return Place{}, err
	}
	if !entered {
		return q.refuse(ctx, t, line, n, opts, TotalBound)
	}
	var joined bool
	if n.Waiters, n.Ahead, joined, err = q.register(ctx, t, line, n, opts.Bounds.Waiters, ttl); err != nil {
		return Place{}, err
	}
	if !joined {
		return q.refuse(ctx, t, line, n, opts, WaitersBound)
	}
	if opts.InOrder {
		n.Ahead = opts.Ahead
	}
	if n.Ahead > 0 {
		n.Timer = q.deferLook(ctx, t, opts, n.Ahead, 0)
	}
	return n.Place, nil
}

// suspended is the reply of the suspend step.
type suspended struct {
	Place
	place, before, now string
}

// suspend ends the run of a task.
func (q *Queue) suspend(ctx context.Context, t Task, line string, opts ParkOptions) (n suspended, err error) {
	reply, err := suspendStep.Run(ctx, q.client, t.ended()[:4], opts.nonce, t.ID, time.Now().UnixNano(), number(opts.late), opts.message,
		line, opts.Attempt, opts.Look.Milliseconds(), opts.Longest.Milliseconds(), opts.Waited.Microseconds()).Slice()
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
	if err := resigned(texts[0]); err != nil {
		return n, err
	}
	n.Task, n.First = t, time.UnixMicro(first)
	n.place, n.before, n.now = texts[3], texts[4], texts[5]
	if texts[0] == "again" { // the one before may have got no further
		n.now = strconv.FormatInt(time.Now().UnixMicro(), 10)
		if n.place == "0" {
			n.place = n.now
		}
	}
	n.Timer = opts.Look
	if opts.Longest > 0 {
		n.Timer = min(n.Timer, opts.Longest)
	}
	return n, nil
}

// deferLook has a task with others before it look for itself later, and returns when. conflicts is how many one has met that has found no place, else 0.
func (q *Queue) deferLook(ctx context.Context, t Task, opts ParkOptions, ahead, conflicts int) time.Duration {
	ms, err := deferStep.Run(ctx, q.client, t.listed(), t.member(), time.Now().UnixNano(), opts.Look.Milliseconds(), ahead, opts.Longest.Milliseconds(),
		conflicts).Int64()
	if err != nil {
		q.log.WarnContext(ctx, "a parked task looks for itself sooner than it need", "task", t.String(), "error", err)
		return opts.Look
	}
	return time.Duration(ms) * time.Millisecond
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
func (q *Queue) register(ctx context.Context, t Task, line string, n suspended, most int, ttl int64) (waiters, ahead int, joined bool, err error) {
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

// refuse takes a task that has found no room out of the line and the index: it waits for its own timer.
func (q *Queue) refuse(ctx context.Context, t Task, line string, n suspended, opts ParkOptions, b Bound) (Place, error) {
	waiters, _, err := numbered(q.step(ctx, discardStep, line, t.member()))
	if err == nil {
		err = q.client.ZRem(ctx, q.index, t.member()).Err()
	}
	if err == nil {
		err = q.step(ctx, unplaceStep, t.hash()).Err()
	}
	if err == nil {
		n.Timer = q.deferLook(ctx, t, opts, waiters, max(n.Count, 1))
	}
	n.Waiters, n.Bound = waiters, b
	return n.Place, err
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
