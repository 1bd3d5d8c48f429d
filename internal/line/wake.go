package line

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// Wake moves the next waiter of key that can run to the head of its queue. Call it when the key is released.
//
// A waiter that is gone, or whose deadline has passed, is removed. Waiters of a paused queue, or of a queue that is
// known to have no server, keep their positions and are skipped. If there are only such waiters, the first is put at
// the head of its queue, and runs as soon as that queue is served. Waiters of a queue that is known to starve under
// StrictPriority are skipped while another waiter can run. A waiter that its timer has brought back tries the
// key by itself. A waiter that is pending is moved if it is near an end of its list; otherwise it comes by itself, and
// the wake goes to the next.
//
// Wake makes one call to Redis, and one more for each hundred waiters that are gone; on a Cluster four to six, and two
// in the background. When Redis does not answer, the Engine makes the wake again until it does or the Engine is closed. When
// Redis refuses it, the waiters' own timers bring them back, as they do when the worker of a woken task crashes. If others
// wait and the Engine is open, it checks half a second later whether a woken task has come. A task that was deleted or
// archived, or that no server has fetched, is replaced by the next waiter that can run; in the latter case by one of another
// queue.
func (e *Engine) Wake(ctx context.Context, key string, opts WakeOptions) (Woken, error) {
	return e.wakeNow(ctx, wakeTarget{key: key}, opts, nil)
}

// WakeTask moves this waiter of key to the head of its queue, even if others stand before it: Tasks of the result then
// has it. It does nothing when t does not wait for key. When t is gone, or its deadline has passed, it is removed, and
// the task that is first by [Engine.Join] is woken in its place. The Engine does the same if t was woken, others wait,
// and t is gone after half a second; without a sequence it then wakes the next waiter.
//
// When it fails, t keeps waiting: see [Engine.Wake].
func (e *Engine) WakeTask(ctx context.Context, key string, t Task) (Woken, error) {
	return e.wakeNow(ctx, wakeTarget{key: key, task: t}, WakeOptions{}, nil)
}

// ComeBack wakes the first waiter of a key that was free when t was parked on it and looked again. It wakes nobody if t is on
// its way: whoever has released the key has woken it, and a second task, woken for the same release, might come first.
func (e *Engine) ComeBack(ctx context.Context, key string, t Task) (Woken, error) {
	rank, err := e.client.ZRank(ctx, e.names.Waiters(key), t.Entry()).Result()
	first := err == nil && rank == 0
	if first {
		if w, err := e.WakeTask(ctx, key, t); err != nil || len(w.Tasks) > 0 {
			return w, err
		}
	}
	if first || errors.Is(err, redis.Nil) {
		state, err := e.client.HGet(ctx, t.Hash(), asynqwire.StateField).Result()
		if err == nil && (state == "pending" || state == "active") {
			return Woken{}, nil
		}
	}
	return e.Wake(ctx, key, WakeOptions{})
}

// WakeAll does for each of several keys what [Engine.Wake] does, and returns the results in their order. Together they
// make one call to Redis; on a Cluster as many in a row as the longest of them.
func (e *Engine) WakeAll(ctx context.Context, wakes []KeyWake) []KeyWoken {
	calls := make([]call, len(wakes))
	for i, w := range wakes {
		calls[i] = e.call(wakeTarget{key: w.Key}, w.WakeOptions, nil)
	}
	return e.wakeAll(ctx, calls)
}

// WakeNext wakes the next task of a key that was released outside of tasks: the head of its sequence, because only that one
// may lock the key, or else the next waiters.
func (e *Engine) WakeNext(ctx context.Context, key string, opts WakeOptions) (Woken, error) {
	e.putOff(key)
	front, err := e.Front(ctx, key)
	if err != nil {
		e.unmade(wakeTarget{key: key}, err)
		return Woken{}, err
	}
	if len(front.Next) == 0 {
		return e.Wake(ctx, key, opts)
	}
	w, err := e.WakeTask(ctx, key, front.Next[0])
	if len(w.Tasks) == 0 {
		w.Head, w.Lost, w.Begun = front.Next[0], front.Lost, front.Begun
	}
	return w, err
}
