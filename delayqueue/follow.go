package delayqueue

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

// followed is the last wake of a key that others still wait for. A task that was woken may never come: it was deleted or archived before a
// worker fetched it, its queue was paused or has lost its workers, or all of these are busy. Then nobody would give the key back, and the others
// would wait for their timers.
type followed struct {
	tasks   []Task
	inOrder bool // woken as the next in line, by WakeTask
	wait    time.Duration
	timer   *time.Timer
}

// follow has the wake of some tasks looked after, instead of the one before, or no wake of the key when nobody is left. late are the tasks in
// whose stead they were woken, which may come as well.
func (q *Queue) follow(who waiter, w Woken, late []Task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f := q.follows[who.key]
	switch {
	case q.closed || f == nil && (len(w.Tasks) == 0 || w.Left == 0):
		return
	case w.Left == 0:
		f.timer.Stop()
		delete(q.follows, who.key)
		return
	case len(w.Tasks) == 0:
		return
	case f == nil:
		f = &followed{}
		f.timer = time.AfterFunc(time.Hour, func() { q.lookAfter(who.key, f) })
		q.follows[who.key] = f
	}
	f.tasks, f.inOrder, f.wait = slices.Concat(late, w.Tasks), who.task != (Task{}), followFirst
	f.timer.Reset(f.wait)
}

// lookAfter looks whether one of the tasks that were woken for a key has come, and if not wakes the next that can run.
func (q *Queue) lookAfter(key string, f *followed) {
	q.mu.Lock()
	if q.closed || q.follows[key] != f {
		q.mu.Unlock()
		return
	}
	q.pending.Add(1)
	tasks, inOrder := f.tasks, f.inOrder
	q.mu.Unlock()
	defer q.pending.Done()

	ctx, cancel := context.WithTimeout(q.closing, followLimit)
	defer cancel()
	came, late, err := q.whereabouts(ctx, key, tasks)
	if err == nil && !came {
		err = q.wakeInstead(ctx, key, tasks, late, inOrder)
	}
	if err != nil {
		q.log.Warn("a wake could not be looked after; the waiters' timers will bring them back", "error", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed || q.follows[key] != f:
	case &f.tasks[0] != &tasks[0]: // others were woken
	case len(late) > 0: // it may still come
		f.wait = min(2*f.wait, followMost)
		f.timer.Reset(f.wait)
	default:
		delete(q.follows, key)
	}
}

// whereabouts reports whether one of the tasks that were woken has come: it runs, or was refused and is parked again. Then whoever has the key goes on
// with the wakes; another one now would only be refused too. late are those that nobody has fetched yet.
func (q *Queue) whereabouts(ctx context.Context, key string, tasks []Task) (came bool, late []Task, err error) {
	for _, t := range tasks {
		state, err := q.client.HGet(ctx, t.hash(), "state").Result()
		switch {
		case errors.Is(err, redis.Nil):
		case err != nil:
			return false, nil, err
		case state == "active":
			return true, nil, nil
		case state == "retry" || state == "scheduled":
			err := q.client.ZScore(ctx, registry(key), t.member()).Err()
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

// wakeInstead wakes somebody in place of tasks that do not come. Those that are late are at the heads of their queues, where nobody fetches them: the
// queue is paused, no server works on it, or all that do are busy. Another task of the same queue would not come sooner.
func (q *Queue) wakeInstead(ctx context.Context, key string, tasks, late []Task, inOrder bool) error {
	if inOrder {
		left, err := q.front(ctx, key, "")
		if err != nil || len(left.Next) == 0 || left.Next[0] == tasks[0] {
			return err // who is first in line holds it up
		}
		w, err := q.wakeNow(ctx, waiter{key: key, task: left.Next[0]}, WakeOptions{}, nil)
		q.repaired(key, w)
		return err
	}
	if len(late) > 0 {
		q.lookForUnserved(ctx) // the next wake knows
	}
	w, err := q.wakeNow(ctx, waiter{key: key}, WakeOptions{}, late)
	q.repaired(key, w)
	return err
}

// repaired tells who listens of a wake that nobody has asked for.
func (q *Queue) repaired(key string, w Woken) {
	for _, t := range w.Tasks {
		if q.repair != nil {
			q.repair(key, t)
		}
	}
}
