package line

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/railtoken/railtoken/internal/pipeline"
)

// parkInSteps does on a Cluster what park.lua does, except that it does not check the locks. The order of the steps
// makes it harmless to end after any of them:
//
//  1. The task is put into the retry set, and the conflict recorded. After that alone, its timer brings it back.
//  2. If the task waited for another key before, it is removed from the waiters of that key, and the wake that it may
//     have had there is passed on. Without this step, those waiters wait for their timers, or until the task is parked
//     again.
//  3. The task is added to the index. After that alone it counts for the total until it is parked again, ends, or is
//     found to be gone.
//  4. The task is added to the waiters of its key. Now it waits. Three steps may follow. One records its exact position;
//     without it, a later conflict puts the task by the time of its first one. One adds it to the waiters of its further
//     keys, which its record names since step 1; without it, their releases do not wake it. The last lengthens its timer
//     when others stand before it; without it, the task tries its key too early.
//
// A repeated call, after a lost reply, continues after step 1.
func (e *Engine) parkInSteps(ctx context.Context, t Task, setKey string, opts ParkOptions) (Parked, error) {
	n, err := e.suspend(ctx, t, setKey, opts)
	if err != nil {
		return Parked{}, err
	}
	ttl := opts.idle()
	if n.before != "" && n.before != setKey {
		if err := e.leaveBefore(ctx, t, n.before, opts); err != nil {
			return Parked{}, err
		}
		if err := e.step(ctx, standStep, t.Hash(), setKey, n.place).Err(); err != nil {
			return Parked{}, err
		}
	}
	entered, err := e.enter(ctx, t, n.now, e.mostParked(t.Queue, opts.MaxTotal), ttl)
	if err != nil {
		return Parked{}, err
	}
	if !entered {
		return e.refuse(ctx, t, setKey, n, opts)
	}
	var joined bool
	if n.Waiters, n.Ahead, joined, err = e.joinWaiters(ctx, t, setKey, n, opts); err != nil {
		return Parked{}, err
	}
	if !joined {
		return e.refuse(ctx, t, setKey, n, opts)
	}
	if opts.InOrder {
		n.Ahead = opts.Ahead
	}
	nearest, err := e.joinFurther(ctx, t, n, opts)
	if err != nil {
		return Parked{}, err
	}
	if nearest > 0 {
		n.Timer = e.lengthenTimer(ctx, t, opts, nearest, 0)
	}
	return n.Parked, nil
}

// leaveBefore removes a task from the waiters of the key that it waited for before, unless it waits for that key again.
func (e *Engine) leaveBefore(ctx context.Context, t Task, before string, opts ParkOptions) error {
	if key, ok := KeyOf(before); ok && slices.Contains(opts.Also, key) {
		return nil
	}
	r := replyOf(e.step(ctx, discardStep, before, t.Entry()))
	if r.err == nil && len(r.rest) == 1 { // it was not among those waiters: it was woken
		e.forward(ctx, before)
	}
	return r.err
}

// joinFurther adds a task to the waiters of its further keys, as far as there is room, and returns how many stand before it
// where they are fewest.
func (e *Engine) joinFurther(ctx context.Context, t Task, n suspended, opts ParkOptions) (nearest int, err error) {
	nearest = n.Ahead
	if len(opts.Also) == 0 {
		return nearest, nil
	}
	joins := make([]pipeline.ScriptCall, len(opts.Also))
	for i, key := range opts.Also {
		joins[i] = pipeline.ScriptCall{Script: joinStep, Keys: []string{e.names.Waiters(key)}, Args: n.joins(t, opts)}
	}
	for _, reply := range e.pipeline(ctx, joins) {
		r := replyOf(reply)
		_, _ = r.number(), r.text()
		if ahead, err := strconv.Atoi(r.text()); err == nil {
			nearest = min(nearest, ahead)
		}
		if r.err != nil {
			return 0, r.err
		}
	}
	return nearest, nil
}

// suspended is the reply of the suspend step.
type suspended struct {
	Parked
	place, before, now string
}

// joins returns the arguments of the step that adds the task to a set of waiters.
func (n suspended) joins(t Task, opts ParkOptions) []any {
	return []any{t.Entry(), n.place, number(n.Count == 1 && opts.Foremost == ""), opts.MaxWaiters, opts.idle()}
}

// suspend ends the run of a task.
func (e *Engine) suspend(ctx context.Context, t Task, setKey string, opts ParkOptions) (n suspended, err error) {
	r := replyOf(suspendStep.Run(ctx, e.client, opts.withUnique(t.ended()[:4]), opts.nonce, t.ID, time.Now().UnixNano(),
		number(opts.late),
		setKey, opts.Attempt, opts.RetryAfter.Milliseconds(), opts.MaxAge.Milliseconds(), opts.Waited.Microseconds(),
		opts.deadline, flag(opts.Own), opts.further(e.names), opts.Foremost))
	outcome := r.text()
	n.Task, n.Count, n.First = t, r.number(), r.moment()
	n.place, n.before, n.now = r.text(), r.text(), r.text()
	if err := cmp.Or(r.err, resigned(outcome)); err != nil {
		return n, err
	}
	if outcome == "again" { // the call before may have ended here
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

// lengthenTimer sets the timer of a task that has others before it, and returns it. conflicts is the number of its
// conflicts when it found no room, and 0 otherwise.
func (e *Engine) lengthenTimer(
	ctx context.Context, t Task, opts ParkOptions, ahead, conflicts int,
) time.Duration {
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
	index := e.names.Index(t.Queue)
	for look := 0; ; look++ {
		others, err := e.step(ctx, enterStep, index, t.Entry(), now, most, ttl).StringSlice()
		if err != nil || len(others) == 0 || look == 1 {
			return len(others) == 0, err
		}
		if err := e.prune(ctx, index, others); err != nil {
			return false, err
		}
	}
}

// joinWaiters adds a task to the waiters of its key. It returns how many wait, how many of them stand before it, and
// whether there was room.
func (e *Engine) joinWaiters(ctx context.Context, t Task, setKey string, n suspended, opts ParkOptions) (waiters,
	ahead int, joined bool, err error,
) {
	for look := 0; ; look++ {
		r := replyOf(e.step(ctx, joinStep, setKey, n.joins(t, opts)...))
		waiters, place := r.number(), r.text()
		ahead, _ := strconv.Atoi(r.text())
		switch others := r.texts(len(r.rest)); {
		case r.err != nil:
			return 0, 0, false, r.err
		case len(others) == 0:
			if place != n.place {
				err = e.step(ctx, standStep, t.Hash(), setKey, place).Err()
			}
			return waiters, ahead, true, err
		case look == 1:
			return waiters, 0, false, nil
		default:
			if err := e.prune(ctx, setKey, others); err != nil {
				return 0, 0, false, err
			}
		}
	}
}

// prune removes tasks that are gone for good from a set of waiters and the index.
func (e *Engine) prune(ctx context.Context, setKey string, entries []string) error {
	looks := make([]pipeline.ScriptCall, len(entries))
	for i, entry := range entries {
		looks[i] = pipeline.ScriptCall{Script: endedStep, Keys: []string{taskOf(entry).Hash()}, Args: nil}
	}
	for i, reply := range e.pipeline(ctx, looks) {
		ended, err := reply.Bool()
		for _, set := range []string{setKey, e.names.Index(taskOf(entries[i]).Queue)} {
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

// refuse removes a task that has found no room from the waiters and the index: it waits for its own timer.
func (e *Engine) refuse(ctx context.Context, t Task, setKey string, n suspended, opts ParkOptions) (Parked, error) {
	r := replyOf(e.step(ctx, discardStep, setKey, t.Entry()))
	waiters, err := r.number(), r.err
	if err == nil {
		err = e.client.ZRem(ctx, e.names.Index(t.Queue), t.Entry()).Err()
	}
	if err == nil {
		err = e.step(ctx, standStep, t.Hash(), "", n.First.UnixMicro()).Err()
	}
	if err == nil {
		n.Timer = e.lengthenTimer(ctx, t, opts, waiters, max(n.Count, 1))
	}
	n.Waiters = waiters
	return n.Parked, err
}
