package line

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// Park ends the run of an active task and lets it wait for key in asynq's retry set, where [Engine.Wake] finds it. No
// count of asynq's changes. If the task was woken for a key that it does not wait for now, the next waiter of that key is
// woken.
//
// A [Engine.Conn] calls it when asynq acknowledges the run of a task for which [Run.Park] was called. The error matches
// [ErrGone], and nothing has changed, when the task is not active any more.
//
// It makes one call to Redis; on a Cluster three, and one more each when others stand before the task and when it waits for
// several keys. The number of waiters does not change the cost.
func (e *Engine) Park(ctx context.Context, t Task, key string, opts ParkOptions) (Parked, error) {
	place, err := e.park(ctx, t, key, opts)
	if err != nil {
		return Parked{}, fmt.Errorf("delayqueue: park task %s: %w", t, err)
	}
	return place, nil
}

func (e *Engine) park(ctx context.Context, t Task, key string, opts ParkOptions) (Parked, error) {
	if opts.nonce == "" {
		opts.nonce = rand.Text()
	}
	if !e.Together(t.Queue, append(opts.Also[:len(opts.Also):len(opts.Also)], key)...) {
		return e.parkInSteps(ctx, t, e.names.Waiters(key), opts)
	}
	there := Task{Queue: opts.Queue, ID: t.ID}
	names := slices.Concat(t.ended()[:4], []string{
		cmp.Or(opts.unique, t.Hash()), e.names.Waiters(key), e.names.Index(t.Queue), e.names.Sequence(key), asynqwire.Pending(t.Queue),
	})
	args := []any{
		t.Entry(), opts.nonce, time.Now().UnixNano(), number(opts.late), opts.deadline,
		opts.Attempt, opts.MaxWaiters, e.mostParked(t.Queue, opts.MaxTotal),
		opts.idle(), opts.RetryAfter.Milliseconds(), opts.MaxAge.Milliseconds(), number(opts.InOrder),
	}
	if opts.Queue == "" || opts.Queue == t.Queue {
		args = append(args, "", "", opts.Ahead)
	} else {
		e.list(ctx, there.Queue) // before the task is there, so that whoever follows it finds it
		names = append(names, there.Hash(), asynqwire.Retry(there.Queue))
		args = append(args, there.Entry(), queueOf(opts.Queue), opts.Ahead)
	}
	args = append(args, opts.Waited.Microseconds(), flag(opts.Own), opts.further(e.names), e.names.encoded(opts.Record), opts.Foremost)
	for _, l := range opts.Locks {
		names = append(names, l.Lock, l.Notify)
	}
	place, swallowed, moved, err := parseParked(parkScript.Run(ctx, e.client, names, args...))
	switch {
	case errors.Is(err, errApart):
		return e.parkInSteps(ctx, t, e.names.Waiters(key), opts)
	case err != nil:
		return Parked{}, err
	}
	place.Task = t
	if moved {
		place.Task = there
	}
	if place.Free && e.woken != nil {
		e.woken(t)
	}
	e.forward(ctx, swallowed)
	return place, nil
}

// list adds a queue to asynq's list: asynq itself has not enqueued to it.
func (e *Engine) list(ctx context.Context, queue string) {
	if _, listed := e.listed.Load(queue); listed {
		return
	}
	if err := e.client.SAdd(ctx, asynqwire.Queues, queue).Err(); err != nil {
		e.log.WarnContext(ctx, "a queue is not in asynq's list of queues; the Inspector does not show it", "queue",
			queue, "error", err)
		return
	}
	e.listed.Store(queue, true)
}

// postpone ends the run of an active task, which asynq runs again after a delay. No count of asynq's changes, and the
// task waits for no key. The error matches [ErrGone] when the task is not active any more. It makes one call to Redis.
func (e *Engine) postpone(ctx context.Context, t Task, opts ParkOptions) error {
	reply, err := postponeStep.Run(ctx, e.client, opts.withUnique(t.ended()[:4]),
		opts.nonce, t.ID, time.Now().UnixNano(), number(opts.late), opts.deadline, opts.RetryAfter.Milliseconds()).Text()
	if err == nil {
		err = resigned(reply)
	}
	if err != nil {
		return fmt.Errorf("delayqueue: put off task %s: %w", t, err)
	}
	return nil
}

// errApart reports that a task has waited for a key in another lane, so that it is parked in steps.
var errApart = errors.New("delayqueue: the task has waited in another lane")

// parseParked reads the reply of park.lua.
func parseParked(cmd *redis.Cmd) (p Parked, swallowed string, moved bool, err error) {
	r := replyOf(cmd)
	outcome := r.text()
	if outcome == "apart" {
		return p, "", false, errApart
	}
	p.Count, p.First, p.Waiters, swallowed = r.number(), r.moment(), r.number(), r.text()
	p.Ahead, _ = strconv.Atoi(r.text())
	p.Timer, moved, p.Looked = time.Duration(r.number())*time.Millisecond, r.yes(), r.yes()
	p.Free = outcome == "free"
	return p, swallowed, moved, cmp.Or(r.err, resigned(outcome))
}
