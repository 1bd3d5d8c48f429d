package intake

import (
	"context"
	"time"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/pipeline"
)

// came notes what a call that asked for n tasks has brought, whose leases began at a time. It reports whether tasks of it
// are being parked. Each of them counts as one that a call asks for until it is parked, so that no more are under way
// than there are slots.
func (in *Intake) came(n int, tasks []Task, leased time.Time) (parking bool) {
	kept := tasks[:0]
	for _, t := range tasks {
		if t.Refused != nil && !t.Woken && in.park != nil && !in.isStopping() && in.park(t, in.parked) {
			n--
			parking = true
			continue
		}
		kept = append(kept, t)
	}
	in.slots.answered(n, kept, leased)
	if len(kept) > 0 {
		in.watch()
	}
	return parking
}

// watch has tasks in memory given back, unless asynq takes them soon.
func (in *Intake) watch() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.timer == nil {
		in.timer = time.AfterFunc(unclaimed, in.look)
	}
}

// parked frees the slot of a task that was parked.
func (in *Intake) parked() { in.slots.answered(1, nil, time.Time{}) }

// look gives back what lies in memory for too long.
func (in *Intake) look() {
	in.mu.Lock()
	old, next := in.slots.expired(time.Now().Add(-unclaimed))
	in.timer = nil
	if !next.IsZero() {
		in.timer = time.AfterFunc(time.Until(next.Add(unclaimed)), in.look) //nolint:forbidigo // asynq will ask soon
	}
	in.mu.Unlock()
	if len(old) > 0 {
		in.quiet.Store(true)
	}
	in.giveBack(old)
}

// Drain gives back what is in memory, once the calls under way are answered. Nothing is taken with acknowledgements
// from then on.
func (in *Intake) Drain(ctx context.Context) {
	in.mu.Lock()
	in.drained.Store(true)
	idle := make(chan struct{})
	if in.calls == 0 {
		close(idle)
	} else {
		in.idle = idle
	}
	in.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	left, _ := in.slots.expired(time.Now())
	in.giveBack(left)
}

// giveBack puts tasks back that asynq has not taken, without their locks, the oldest last, so that it is at the head.
func (in *Intake) giveBack(tasks []Task) {
	if len(tasks) == 0 {
		return
	}
	in.repeat(func(ctx context.Context) error {
		for ; len(tasks) > 0; tasks = tasks[:len(tasks)-1] {
			t := tasks[len(tasks)-1]
			queue, woken := keysOf([]string{t.Queue}), 0
			if t.Woken {
				woken = 1
			}
			locks := &colocated.Release{}
			if t.Taken != nil {
				locks = t.Taken.Release(in.freed)
			}
			keys := append([]string{asynqwire.Hash(t.Queue, t.ID), queue[2], queue[3], queue[0]}, locks.Keys...)
			reply, err := in.server.Run(ctx, pipeline.NewCall(nil, giveBackScript, keys,
				t.Run, t.ID, time.Now().UnixNano(), woken, locks.Owner))
			if passes(err) {
				return err
			}
			if err == nil {
				locks.Answered(colocated.Outcome{Notify: reply != int64(0)})
			} else if t.Taken != nil {
				locks.Run(ctx, true)
			}
		}
		return nil
	}, func() {}) // asynq recovers them
}
