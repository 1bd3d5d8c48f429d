package line

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// followUp has a wake checked later, in place of the previous wake of its key. If no waiter is left, no wake of the key
// is checked any more. The tasks in c.late may still come, and count as woken. It reports false when the Engine is
// closed.
func (e *Engine) followUp(c call, w Woken) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.lastWakes[c.target.key]
	none, over := len(w.Tasks) == 0 && !w.Pending, w.Left == 0 && !w.Pending
	switch {
	case e.closed || none && !over || over && f == nil:
		return !e.closed
	case over:
		f.timer.Stop()
		delete(e.lastWakes, c.target.key)
		return true
	case f == nil:
		f = &lastWake{}
		f.timer = time.AfterFunc(time.Hour, func() { e.checkWake(c.target.key, f) })
		e.lastWakes[c.target.key] = f
	}
	if !w.unmade {
		f.silent = time.Time{}
	} else if f.silent.IsZero() {
		f.silent = time.Now()
	}
	switch {
	case !w.Pending:
		f.wait = followUpFirst
	case w.unmade:
		f.wait = min(max(time.Since(f.silent)/4, unmadeFirst), followUpMost)
	case f.again:
		f.wait = min(f.wait+f.wait/4, followUpMost)
	default:
		f.wait = movingFirst
	}
	f.target, f.tasks, f.again = c.target, slices.Concat(c.late, w.Tasks), w.Pending
	f.owed = time.Now().Add(owedAfter)
	f.changes++
	changes := f.changes
	f.timer.Reset(f.wait)
	if w.inSteps && w.Left > 0 && len(w.Tasks) > 0 { // otherwise the script has noted it
		e.pending.Go(func() {
			ctx, cancel := context.WithTimeout(e.closing, followUpLimit)
			defer cancel()
			if err := e.owe(ctx, c.target.key, owedAfter); err != nil {
				e.log.WarnContext(ctx, "a wake is followed up by this process alone", "error", err)
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			if f.changes == changes {
				f.owed = time.Now().Add(owedAfter)
			}
		})
	}
	return true
}

// checkWake checks whether one of the tasks that were woken for a key has come; if not, it wakes the next waiter that
// can run.
func (e *Engine) checkWake(key string, f *lastWake) {
	e.mu.Lock()
	if e.closed || e.lastWakes[key] != f {
		e.mu.Unlock()
		return
	}
	e.pending.Add(1)
	was := *f
	e.mu.Unlock()
	defer e.pending.Done()

	ctx, cancel := context.WithTimeout(e.closing, followUpLimit)
	defer cancel()
	var late []Task
	var again bool
	var owed time.Time
	var err error
	if was.again {
		var w Woken
		w, err = e.wakeAgain(ctx, was.target)
		e.repaired(key, w, false)
	} else {
		var came, held bool
		came, late, err = e.haveCome(ctx, key, was.tasks)
		if err == nil && !came && len(late) == 0 {
			held, err = e.isHeld(ctx, key)
		}
		if err == nil && !came && !held {
			err = e.wakeAnother(ctx, was, late)
		}
		again = len(late) > 0 || held // it may still come, or have been the last one to hold the key
		switch {
		case err != nil:
		case came:
			err = e.paid(ctx, key, was.owed)
		case again:
			in := min(2*was.wait, followUpMost) + owedAfter
			err = e.owe(ctx, key, in)
			owed = time.Now().Add(in)
		}
	}
	failed := comesBack(err)
	switch {
	case failed && (was.again || was.failed): // the log has it
	case failed:
		e.log.Warn("a wake is not followed up yet; this is done once Redis answers", "error", err)
	case err != nil:
		e.log.Warn("a wake could not be followed up; the waiters' timers will bring them back", "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed || e.lastWakes[key] != f:
	case f.changes != was.changes: // there was another wake
	case again || failed:
		if f.failed = failed; !failed {
			f.owed = owed
		}
		f.wait = min(2*f.wait, followUpMost)
		f.timer.Reset(f.wait)
	default:
		delete(e.lastWakes, key)
	}
}

// comesBack reports whether a wake has failed with err because Redis does not answer, or not now, so that it is made again.
func comesBack(err error) bool {
	var refusal redis.Error
	return err != nil && !errors.Is(err, lanes.ErrOther) && (!errors.As(err, &refusal) || rediswire.IsTransient(refusal.Error()))
}

// wakeAgain makes a wake again that has not reached its task.
func (e *Engine) wakeAgain(ctx context.Context, target wakeTarget) (Woken, error) {
	if target.task == (Task{}) {
		return e.WakeNext(ctx, target.key, WakeOptions{})
	}
	return e.wakeNow(ctx, target, WakeOptions{}, nil)
}

// unmade has a wake made again that has failed with err, if Redis has not answered it.
func (e *Engine) unmade(target wakeTarget, err error) {
	if comesBack(err) {
		e.followUp(call{target: target}, Woken{Pending: true, unmade: true})
	}
}

// putOff has a wake that is to be made again wait for one of the same key that begins, and is made again itself if it fails: a caller
// repeats a wake, too. Otherwise one release would wake two tasks, and the second would come first.
func (e *Engine) putOff(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := e.lastWakes[key]; f != nil && !f.silent.IsZero() && !e.closed {
		f.timer.Reset(max(f.wait, 2*followUpLimit))
	}
}

// haveCome reports whether one of the woken tasks has come: it runs, or was refused and is parked again. Then the
// holder of the key makes the next wake, and another one now would wake a task only to be refused. late are the tasks
// that no server has fetched yet.
func (e *Engine) haveCome(ctx context.Context, key string, tasks []Task) (came bool, late []Task, err error) {
	for _, t := range tasks {
		state, err := e.client.HGet(ctx, t.Hash(), asynqwire.StateField).Result()
		switch {
		case errors.Is(err, redis.Nil):
		case err != nil:
			return false, nil, err
		case state == "active":
			return true, nil, nil
		case state == "retry":
			err := e.client.ZScore(ctx, e.names.Waiters(key), t.Entry()).Err()
			if err == nil {
				return true, nil, nil
			}
			if !errors.Is(err, redis.Nil) {
				return false, nil, err
			}
		case state == "pending":
			late = append(late, t)
		}
	}
	return false, late, nil
}

// isHeld reports whether the key of a woken task is held that is gone. Then the task has probably run and is done, and
// another server has made the next wake: one more would wake a task only to be refused. If the locks are elsewhere, that
// is not known.
func (e *Engine) isHeld(ctx context.Context, key string) (bool, error) {
	if e.lockOf == nil {
		return false, nil
	}
	lock, _ := e.lockOf(key)
	n, err := e.client.Exists(ctx, lock).Result()
	return n > 0, err
}

// areStuck reports whether no server can fetch these tasks, however many slots are free: their queues are paused or have no
// server. Otherwise all slots that could take one of them are occupied. It is true if there are none.
func (e *Engine) areStuck(ctx context.Context, late []Task) (bool, error) {
	queues, starved := e.lastUnserved()
	for _, t := range late {
		if slices.Contains(queues[:len(queues)-starved], t.Queue) {
			continue
		}
		paused, err := e.client.Exists(ctx, asynqwire.Paused(t.Queue)).Result()
		if err != nil || paused == 0 {
			return false, err
		}
	}
	return true, nil
}

// wakeAnother wakes a waiter in place of tasks that do not come. Late tasks are at the heads of their queues and are
// not fetched: the queue is paused, no server works on it, or all of its servers are busy. Another task of the same
// queue would not come sooner.
func (e *Engine) wakeAnother(ctx context.Context, was lastWake, late []Task) error {
	if was.target.task != (Task{}) {
		left, err := e.front(ctx, was.target.key, "")
		if err != nil || len(left.Next) > 0 && left.Next[0] == was.tasks[0] {
			return err // the first task of the sequence holds it up
		}
		if len(left.Next) > 0 {
			w, err := e.wakeNow(ctx, wakeTarget{key: was.target.key, task: left.Next[0]}, WakeOptions{}, nil)
			e.repaired(was.target.key, w, len(late) == 0)
			return err
		}
	}
	if len(late) > 0 {
		e.lookForUnserved(ctx) // for the next wake
	}
	lost, err := e.areStuck(ctx, late)
	if err != nil {
		return err
	}
	w, err := e.wakeNow(ctx, wakeTarget{key: was.target.key}, WakeOptions{}, late)
	e.repaired(was.target.key, w, lost)
	return err
}

// repaired reports a wake that no caller has asked for. lost says that the wake before it went to no task that can run.
func (e *Engine) repaired(key string, w Woken, lost bool) {
	for _, t := range w.Tasks {
		if e.repair != nil {
			e.repair(key, t, lost)
		}
	}
}

// wakeNow makes one wake. If the task that it is for is gone, the first one of the sequence is woken.
func (e *Engine) wakeNow(ctx context.Context, target wakeTarget, opts WakeOptions, late []Task) (Woken, error) {
	if err := e.agreement.Reach(ctx); err != nil {
		e.unmade(target, err)
		return Woken{}, fmt.Errorf("delayqueue: %w", err)
	}
	for {
		w := e.wakeAll(ctx, []call{e.call(target, opts, late)})[0]
		if w.Err != nil || target.task == (Task{}) || !w.gone {
			return w.Woken, w.Err
		}
		left, err := e.Front(ctx, target.key)
		e.unmade(wakeTarget{key: target.key}, err)
		if err != nil || len(left.Next) == 0 || left.Next[0] == target.task {
			return w.Woken, err
		}
		target.task = left.Next[0]
	}
}

// wakeAll makes several wakes at once, has them checked later, and reports the tasks that they woke, also those of
// wakes that failed afterwards.
func (e *Engine) wakeAll(ctx context.Context, calls []call) []KeyWoken {
	for _, c := range calls {
		e.putOff(c.target.key)
	}
	all := e.wakeEach(ctx, calls)
	for i, w := range all {
		if calls[i].starved > 0 && w.Err == nil && len(w.Tasks) == 0 && !w.Pending && w.Left > 0 {
			w = e.wakeEach(ctx, []call{calls[i].withStarved()})[0]
			all[i] = w
		}
		e.held.Woke(calls[i].target.key, len(w.Tasks))
		for _, t := range w.Tasks {
			if e.woken != nil {
				e.woken(t)
			}
		}
		if w.Err != nil {
			all[i].Err = fmt.Errorf("delayqueue: wake the next task: %w", w.Err)
			e.unmade(calls[i].target, w.Err)
			continue
		}
		all[i].Pending = e.followUp(calls[i], w.Woken) && w.Pending
	}
	return all
}
