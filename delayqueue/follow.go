package delayqueue

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// followFirst is when a wake is looked after first, and followMost the longest time between two looks.
	followFirst = time.Second
	followMost  = 30 * time.Second
	followLimit = 5 * time.Second // bounds one look
	followLate  = 4 * time.Second // from then on a task that nobody has fetched may lie in a queue that nobody works on
)

// followed is the last wake of a key that others still wait for. A task that was woken may never come: it was deleted or archived
// before a worker fetched it, its queue was paused, its deadline has passed. Then nobody would give the key back, and the others would wait
// for their timers.
type followed struct {
	tasks   []Task
	inOrder bool // woken as the next in line, by WakeTask
	wait    time.Duration
	timer   *time.Timer
}

// follow has the wake of some tasks looked after, instead of the one before, or no wake of the key when nobody is left. again says that it
// is itself what came of such a look: then the next one comes later.
func (q *Queue) follow(who waiter, w Woken, again bool) {
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
	f.tasks, f.inOrder = w.Tasks, who.task != (Task{})
	if f.wait = min(2*f.wait, followMost); !again || f.wait == 0 {
		f.wait = followFirst
	}
	f.timer.Reset(f.wait)
}

// lookAfter looks whether one of the tasks that were woken for a key is on its way, and if not wakes the next.
func (q *Queue) lookAfter(key string, f *followed) {
	q.mu.Lock()
	if q.closed || q.follows[key] != f {
		q.mu.Unlock()
		return
	}
	q.pending.Add(1)
	tasks, inOrder, late := f.tasks, f.inOrder, f.wait >= followLate
	q.mu.Unlock()
	defer q.pending.Done()

	ctx, cancel := context.WithTimeout(q.closing, followLimit)
	defer cancel()
	on, came, err := q.onItsWay(ctx, key, tasks, late)
	if err == nil && !on {
		err = q.wakeInstead(ctx, key, tasks, inOrder)
	}
	if err != nil {
		q.log.Warn("a wake could not be looked after; the waiters' timers will bring them back", "error", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed || q.follows[key] != f:
	case on && !came: // nobody has fetched it yet
		f.wait = min(2*f.wait, followMost)
		f.timer.Reset(f.wait)
	case on || &f.tasks[0] == &tasks[0]: // it came, or nobody else was woken
		delete(q.follows, key)
	}
}

// onItsWay reports whether one of the tasks that were woken will run in a moment, or has come: it runs, or was refused and is parked again. Then
// whoever has the key goes on with the wakes; another one now would only be refused too.
func (q *Queue) onItsWay(ctx context.Context, key string, tasks []Task, late bool) (on, came bool, err error) {
	for _, t := range tasks {
		state, err := q.client.HGet(ctx, t.hash(), "state").Result()
		switch {
		case errors.Is(err, redis.Nil):
		case err != nil:
			return false, false, err
		case state == "active":
			return true, true, nil
		case state == "retry" || state == "scheduled":
			err := q.client.ZScore(ctx, registry(key), t.member()).Err()
			if err == nil {
				return true, true, nil
			}
			if !errors.Is(err, redis.Nil) {
				return false, false, err
			}
		case state == "pending":
			paused, err := q.client.Exists(ctx, "asynq:{"+t.Queue+"}:paused").Result()
			if err != nil {
				return false, false, err
			}
			on = on || paused == 0 && (!late || !q.abandoned(ctx, t.Queue))
		}
	}
	return on, false, nil
}

// abandoned reports whether tasks lie in a queue that no server works on, as after a strategy has ceased to name it.
func (q *Queue) abandoned(ctx context.Context, queue string) bool {
	servers, err := q.inspect.Servers()
	if err != nil {
		return false // nobody knows
	}
	for _, s := range servers {
		if _, ok := s.Queues[queue]; ok {
			return false
		}
	}
	q.log.WarnContext(ctx, "a task that was woken lies in a queue that no server works on: have a worker serve it, or empty it", "queue", queue)
	return true
}

// wakeInstead wakes somebody in place of tasks that do not come.
func (q *Queue) wakeInstead(ctx context.Context, key string, tasks []Task, inOrder bool) error {
	who := waiter{key: key}
	if inOrder {
		left, err := q.front(ctx, key, "")
		if err != nil || len(left.Next) == 0 || left.Next[0] == tasks[0] {
			return err // who is first in line holds it up
		}
		who.task = left.Next[0]
	}
	_, err := q.wakeOrTryAgain(ctx, who, WakeOptions{}, true)
	return err
}
