package parking

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// followFirst is when a wake is looked after, and followMost the longest time between two looks at the same tasks.
	followFirst = 500 * time.Millisecond
	followMost  = 30 * time.Second
	followLimit = 5 * time.Second // bounds one look
)

// followed is the last wake of a key that others still wait for. A task that was woken may never come: it was deleted
// or archived before a worker fetched it, its queue was paused or has lost its workers, or all of these are busy. Then
// nobody would give the key back, and the others would wait for their timers. A wake whose waiter's slot moves is tried
// again until the slot has arrived.
type followed struct {
	who     waiter // the one that was woken as the next in line, by WakeTask, or any
	tasks   []Task
	moving  bool
	wait    time.Duration
	timer   *time.Timer
	changes int
}

// follow has a wake looked after, instead of the one before, or no wake of the key when nobody is left. The tasks that
// were late may come as well. It reports false when the Queue is closed.
func (e *Engine) follow(c call, w Woken) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.follows[c.who.key]
	none, over := len(w.Tasks) == 0 && !w.Pending, w.Left == 0 && !w.Pending
	switch {
	case e.closed || none && !over || over && f == nil:
		return !e.closed
	case over:
		f.timer.Stop()
		delete(e.follows, c.who.key)
		return true
	case f == nil:
		f = &followed{}
		f.timer = time.AfterFunc(time.Hour, func() { e.lookAfter(c.who.key, f) })
		e.follows[c.who.key] = f
	}
	switch {
	case !w.Pending:
		f.wait = followFirst
	case f.moving:
		f.wait = min(f.wait+f.wait/4, followMost)
	default:
		f.wait = movingFirst
	}
	f.who, f.tasks, f.moving = c.who, slices.Concat(c.late, w.Tasks), w.Pending
	f.changes++
	f.timer.Reset(f.wait)
	return true
}

// lookAfter looks whether one of the tasks that were woken for a key has come, and if not wakes the next that can run.
func (e *Engine) lookAfter(key string, f *followed) {
	e.mu.Lock()
	if e.closed || e.follows[key] != f {
		e.mu.Unlock()
		return
	}
	e.pending.Add(1)
	was := *f
	e.mu.Unlock()
	defer e.pending.Done()

	ctx, cancel := context.WithTimeout(e.closing, followLimit)
	defer cancel()
	var late []Task
	var again bool
	var err error
	if was.moving {
		var w Woken
		w, err = e.wakeNow(ctx, was.who, WakeOptions{}, nil)
		e.repaired(key, w)
		again = err != nil
	} else {
		var came bool
		came, late, err = e.whereabouts(ctx, key, was.tasks)
		if err == nil && !came {
			err = e.wakeInstead(ctx, was, late)
		}
		again = len(late) > 0 // it may still come
	}
	if err != nil {
		e.log.Warn("a wake could not be followed up; the waiters' timers will bring them back", "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed || e.follows[key] != f:
	case f.changes != was.changes: // others were woken
	case again:
		f.wait = min(2*f.wait, followMost)
		f.timer.Reset(f.wait)
	default:
		delete(e.follows, key)
	}
}

// whereabouts reports whether one of the tasks that were woken has come: it runs, or was refused and is parked again.
// Then whoever has the key goes on with the wakes; another one now would only be refused too. late are those that
// nobody has fetched yet.
func (e *Engine) whereabouts(ctx context.Context, key string, tasks []Task) (came bool, late []Task, err error) {
	for _, t := range tasks {
		state, err := e.client.HGet(ctx, t.Hash(), "state").Result()
		switch {
		case errors.Is(err, redis.Nil):
		case err != nil:
			return false, nil, err
		case state == "active":
			return true, nil, nil
		case state == "retry":
			err := e.client.ZScore(ctx, WaitersKey(key), t.Entry()).Err()
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

// wakeInstead wakes somebody in place of tasks that do not come. Those that are late are at the heads of their queues,
// where nobody fetches them: the queue is paused, no server works on it, or all that do are busy. Another task of the
// same queue would not come sooner.
func (e *Engine) wakeInstead(ctx context.Context, was followed, late []Task) error {
	if was.who.task != (Task{}) {
		left, err := e.front(ctx, was.who.key, "")
		if err != nil || len(left.Next) == 0 || left.Next[0] == was.tasks[0] {
			return err // who is first in line holds it up
		}
		w, err := e.wakeNow(ctx, waiter{key: was.who.key, task: left.Next[0]}, WakeOptions{}, nil)
		e.repaired(was.who.key, w)
		return err
	}
	if len(late) > 0 {
		e.lookForUnserved(ctx) // the next wake knows
	}
	w, err := e.wakeNow(ctx, was.who, WakeOptions{}, late)
	e.repaired(was.who.key, w)
	return err
}

// repaired reports a wake that was not asked for.
func (e *Engine) repaired(key string, w Woken) {
	for _, t := range w.Tasks {
		if e.repair != nil {
			e.repair(key, t)
		}
	}
}
