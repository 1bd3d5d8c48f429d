package parking

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/keys"
)

// overdue is our word for the state of a task that waits although its deadline has passed. asynq does not run its
// handler again, but retries the task, for days, until it archives it. No task should wait for that.
const overdue = "overdue"

// passed reports whether a deadline (s), 0 for none, has passed.
func passed(deadline int64, now time.Time) bool {
	return deadline > 0 && !now.Before(time.Unix(deadline, 0))
}

// Overdue reports whether the deadline of the task has passed, so that asynq does not run its handler again.
func (r *Run) Overdue() bool { return r != nil && passed(deadlineOf(r.message), time.Now()) }

// passOn removes the task of a run from its sequence in the background, and wakes the first task that is left, because
// asynq ends the run without its handler. While the task was active, it counted as the first of its sequence, and a
// release woke no other.
func (r *Run) passOn() {
	e := r.queue
	e.background(e.closing, followUpLimit, func(ctx context.Context) {
		_, err := Retry(ctx, e.closing.Done(), func(ctx context.Context) (none struct{}, err error) {
			all, err := r.sequences(ctx)
			for _, key := range all {
				left, failed := e.front(ctx, key, "", r.task.Entry())
				if failed == nil && left.Parked > 0 && len(left.Next) > 0 {
					var w Woken
					w, failed = e.WakeTask(ctx, key, left.Next[0])
					e.repaired(key, w)
				}
				err = errors.Join(err, failed)
			}
			return none, err
		})
		if err != nil {
			e.log.WarnContext(ctx, "passing on a wake failed; the waiters' timers will bring them back", "task",
				r.task.String(), "error", err)
		}
	})
}

// sequences returns the keys in whose sequences the task may be without a run of its handler: the one that
// EnqueueInOrder has put it in, and the one that it has waited for.
func (r *Run) sequences(ctx context.Context) (all []string, err error) {
	header := headerIn(r.message, sequenceHeader)
	encoded, _, _ := strings.Cut(header, " ")
	if key, ok := keys.Decode(encoded); ok && header == headerOf(r.task, key) {
		all = append(all, key)
	}
	if r.met.Count == 0 {
		return all, nil
	}
	name, err := r.queue.client.HGet(ctx, r.task.Hash(), "railtoken:waiters").Result()
	if key, ok := KeyOf(name); ok && !slices.Contains(all, key) {
		all = append(all, key)
	}
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return all, err
}
