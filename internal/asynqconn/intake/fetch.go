package intake

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Fetch takes tasks from the queues of the server, or on a Redis Cluster from the one that asynq has asked for. more
// reports that some of them are being parked, so that there may be others behind them.
func (in *Intake) Fetch(ctx context.Context, queue string) (more bool, err error) {
	if !in.begin(false) {
		return false, redis.Nil
	}
	defer in.end()
	in.quiet.Store(false)
	names := in.namesFor(queue)
	n := in.slots.ask(1)
	if in.isStopping() {
		in.slots.answered(n-1, nil, time.Time{})
		n = 1
	}
	if !in.oneNode {
		share := in.order.share(queue, n)
		in.slots.answered(n-share, nil, time.Time{})
		n = share
	}
	call := rand.Text()
	keys := append(in.keysFor(names), recalledKey(queue, call))
	in.recalling <- struct{}{}
	defer func() { <-in.recalling }()
	if err := in.recall(ctx); err != nil {
		in.slots.answered(n, nil, time.Time{})
		return false, err
	}
	r := reader{names: names, asking: in.ask()}
	locks := r.values()
	args := append([]any{call, n, leaseEnd()}, locks[:]...)
	if len(names) > 1 {
		args = append(args, in.order.orders(n)...)
	} else {
		args = append(args, "\x01")
	}
	got, err := in.run(ctx, fetchScript, keys, args, r)
	if !unanswered(err) {
		return in.came(n, got.tasks), err
	}
	var parking atomic.Bool // a recall in the background may outlast this call
	in.lost = func(ctx context.Context) error {
		got, err := in.run(ctx, recallScript, keys,
			append([]any{call, int(lateCall.Seconds()), leaseEnd()}, locks[:]...), r)
		if !passes(err) {
			parking.Store(in.came(n, got.tasks))
			err = nil
		}
		return err
	}
	if in.recall(ctx) == nil {
		return parking.Load(), nil
	}
	in.repeat(func(ctx context.Context) error { // asynq asks for no other task while it has as many as it can run
		in.recalling <- struct{}{}
		defer func() { <-in.recalling }()
		if in.lost != nil && time.Since(in.recalled) < repeatMost { // asynq does fetch
			return errRecalled
		}
		return in.recall(ctx)
	}, func() {}) // the next fetch recalls it
	return false, err
}

// namesFor returns the queues that a Fetch for one of them looks at.
func (in *Intake) namesFor(queue string) []string {
	if in.oneNode && slices.Contains(in.order.names, queue) {
		return in.order.names
	}
	return []string{queue}
}

// keysFor returns the keys of queues in the scripts.
func (in *Intake) keysFor(names []string) []string {
	if slices.Equal(names, in.order.names) {
		return slices.Clone(in.keys)
	}
	return keysOf(names)
}

// errRecalled has a recall in the background wait, because the last one was a moment ago.
var errRecalled = errors.New("asynqconn: the last fetch was recalled just now")

// recall asks for the tasks of the last fetch if it was not answered. The caller has put a value into recalling.
func (in *Intake) recall(ctx context.Context) error {
	if in.lost == nil {
		return nil
	}
	in.recalled = time.Now()
	err := in.lost(ctx)
	if err == nil {
		in.lost = nil
	}
	return err
}

// recalledKey returns the mark of a fetch that was recalled. Its name begins as asynq's own do, because a Redis user of
// asynq's may have no rights to others.
func recalledKey(queue, call string) string { return "asynq:{" + queue + "}:recalled:" + call }
