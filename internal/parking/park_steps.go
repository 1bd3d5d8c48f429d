package parking

import (
	"cmp"
	"context"
	"strconv"
	"time"
)

// parkInSteps does on a Cluster what park.lua does at once, but for the look at the lock. The order makes every point
// at which it may end harmless:
//
//  1. The task is put into the retry set, and the conflict noted. After that alone, its timer brings it back.
//  2. When the task stood in another line it leaves that, and passes on the wake that it may have had there. Without
//     it, those in that line wait for their timers, or until the task is parked again.
//  3. The index. After that alone: a task too many counts, until it is parked again, ends, or is found to be gone.
//  4. The line. Now it waits; what may follow is its exact place, without which a later conflict puts it by the time of
//     its first, and the longer timer of a task with others before it, without which it looks too early.
//
// A repeated call, after a lost reply, goes on after step 1.
func (e *Engine) parkInSteps(ctx context.Context, t Task, line string, opts ParkOptions) (Parked, error) {
	n, err := e.suspend(ctx, t, line, opts)
	if err != nil {
		return Parked{}, err
	}
	ttl := opts.idle()
	if n.before != "" && n.before != line {
		r := replyOf(e.step(ctx, discardStep, n.before, t.Entry()))
		if r.err != nil {
			return Parked{}, r.err
		}
		if len(r.rest) == 1 { // the entry was not there
			e.passOn(ctx, n.before)
		}
		if err := e.step(ctx, standStep, t.Hash(), line, n.place).Err(); err != nil {
			return Parked{}, err
		}
	}
	entered, err := e.enter(ctx, t, n.now, opts.MaxTotal, ttl)
	if err != nil {
		return Parked{}, err
	}
	if !entered {
		return e.refuse(ctx, t, line, n, opts)
	}
	var joined bool
	if n.Waiters, n.Ahead, joined, err = e.register(ctx, t, line, n, opts.MaxWaiters, ttl); err != nil {
		return Parked{}, err
	}
	if !joined {
		return e.refuse(ctx, t, line, n, opts)
	}
	if opts.InOrder {
		n.Ahead = opts.Ahead
	}
	if n.Ahead > 0 {
		n.Timer = e.deferLook(ctx, t, opts, n.Ahead, 0)
	}
	return n.Parked, nil
}

// suspended is the reply of the suspend step.
type suspended struct {
	Parked
	place, before, now string
}

// suspend ends the run of a task.
func (e *Engine) suspend(ctx context.Context, t Task, line string, opts ParkOptions) (n suspended, err error) {
	r := replyOf(suspendStep.Run(ctx, e.client, opts.withUnique(t.ended()[:4]), opts.nonce, t.ID, time.Now().UnixNano(),
		number(opts.late), opts.message,
		line, opts.Attempt, opts.RetryAfter.Milliseconds(), opts.MaxAge.Milliseconds(), opts.Waited.Microseconds(), opts.deadline))
	outcome := r.text()
	n.Task, n.Count, n.First = t, r.number(), r.moment()
	n.place, n.before, n.now = r.text(), r.text(), r.text()
	if err := cmp.Or(r.err, resigned(outcome)); err != nil {
		return n, err
	}
	if outcome == "again" { // the one before may have got no further
		n.now = strconv.FormatInt(time.Now().UnixMicro(), 10)
		if n.place == "0" {
			n.place = n.now
		}
	}
	n.Timer = opts.RetryAfter
	if opts.MaxAge > 0 {
		n.Timer = min(n.Timer, opts.MaxAge)
	}
	return n, nil
}

// deferLook has a task with others before it look for itself later, and returns when. conflicts is how many one has met
// that has found no place, else 0.
func (e *Engine) deferLook(ctx context.Context, t Task, opts ParkOptions, ahead, conflicts int) time.Duration {
	ms, err := deferStep.Run(ctx, e.client, opts.withUnique(t.listed()), t.Entry(), time.Now().UnixNano(),
		opts.RetryAfter.Milliseconds(), ahead,
		opts.MaxAge.Milliseconds(), conflicts).Int64()
	if err != nil {
		e.log.WarnContext(ctx, "a parked task retries earlier than needed", "task", t.String(), "error", err)
		return opts.RetryAfter
	}
	return time.Duration(ms) * time.Millisecond
}

// enter adds a task to the index of all parked tasks, and reports whether there was room.
func (e *Engine) enter(ctx context.Context, t Task, now string, most int, ttl int64) (bool, error) {
	for look := 0; ; look++ {
		others, err := e.step(ctx, enterStep, e.index, t.Entry(), now, most, ttl).StringSlice()
		if err != nil || len(others) == 0 || look == 1 {
			return len(others) == 0, err
		}
		if err := e.prune(ctx, e.index, others); err != nil {
			return false, err
		}
	}
}

// register puts a task in line, and reports how many wait, how many of them before it, and whether there was room.
func (e *Engine) register(ctx context.Context, t Task, line string, n suspended, most int, ttl int64) (waiters,
	ahead int, joined bool, err error,
) {
	behind := 0
	if n.Count == 1 {
		behind = 1
	}
	for look := 0; ; look++ {
		r := replyOf(e.step(ctx, joinStep, line, t.Entry(), n.place, behind, most, ttl))
		waiters, place := r.number(), r.text()
		ahead, _ := strconv.Atoi(r.text())
		switch others := r.texts(len(r.rest)); {
		case r.err != nil:
			return 0, 0, false, r.err
		case len(others) == 0:
			if place != n.place {
				err = e.step(ctx, standStep, t.Hash(), line, place).Err()
			}
			return waiters, ahead, true, err
		case look == 1:
			return waiters, 0, false, nil
		default:
			if err := e.prune(ctx, line, others); err != nil {
				return 0, 0, false, err
			}
		}
	}
}

// prune takes the tasks that have gone for good out of a line and the index.
func (e *Engine) prune(ctx context.Context, line string, entries []string) error {
	looks := make([]scriptCall, len(entries))
	for i, entry := range entries {
		looks[i] = scriptCall{endedStep, []string{taskOf(entry).Hash()}, nil}
	}
	for i, reply := range e.pipeline(ctx, looks) {
		ended, err := reply.Bool()
		for _, set := range []string{line, e.index} {
			if err == nil && ended {
				err = e.client.ZRem(ctx, set, entries[i]).Err()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refuse takes a task that has found no room out of the line and the index: it waits for its own timer.
func (e *Engine) refuse(ctx context.Context, t Task, line string, n suspended, opts ParkOptions) (Parked, error) {
	r := replyOf(e.step(ctx, discardStep, line, t.Entry()))
	waiters, err := r.number(), r.err
	if err == nil {
		err = e.client.ZRem(ctx, e.index, t.Entry()).Err()
	}
	if err == nil {
		err = e.step(ctx, unplaceStep, t.Hash()).Err()
	}
	if err == nil {
		n.Timer = e.deferLook(ctx, t, opts, waiters, max(n.Count, 1))
	}
	n.Waiters = waiters
	return n.Parked, err
}
