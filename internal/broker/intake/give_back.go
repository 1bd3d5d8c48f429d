package intake

import (
	"context"
	"time"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/colocated"
)

// came notes what a call that asked for n tasks has brought, whose leases began at a time. It reports whether tasks of it
// are being parked. Each of them counts as one that a call asks for until it is parked, so that no more are under way
// than there are slots.
func (in *Intake) came(n int, tasks []Task, leased time.Time) (parking bool) {
	kept := make([]Task, 0, len(tasks))
	var refused []Task
	for _, t := range tasks {
		if t.Refused != nil {
			refused = append(refused, t)
			continue
		}
		in.begins(t)
		kept = append(kept, t)
	}
	for _, t := range refused { // now it is known which keys this process has
		if in.parks(t, leased) {
			n--
			parking = true
			continue
		}
		in.begins(t)
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

// begins begins the run of a task.
func (in *Intake) begins(t Task) {
	if in.tasks != nil {
		in.tasks.Fetched(t)
	}
}

// parks has a task parked that was refused, and reports whether it does.
func (in *Intake) parks(t Task, leased time.Time) bool {
	return in.tasks != nil && !in.isStopping() &&
		in.tasks.Park(t, in.parked, func() bool { return in.deliver(t, leased) })
}

// left ends the run of a task that goes back, and returns the release of its locks. It has those released that no script can.
func (in *Intake) left(t Task) (locks *colocated.Release) {
	switch {
	case in.tasks != nil:
		locks = in.tasks.Left(t)
	case t.Taken != nil:
		locks = t.Taken.Release(nil)
	}
	switch {
	case locks == nil || locks.Kept:
		return &colocated.Release{}
	case !locks.Scripted():
		apart := locks
		run := func(ctx context.Context) { apart.Run(ctx, false) }
		if !in.spawn(repeatLimit, run) {
			go run(context.Background())
		}
		return &colocated.Release{}
	}
	return locks
}

// deliver gives asynq a task that was being parked and has its locks now. It reports false if asynq takes no more tasks.
func (in *Intake) deliver(t Task, leased time.Time) bool {
	if in.isStopping() || !in.begin(false) {
		return false
	}
	defer in.end()
	in.slots.answered(0, []Task{t}, leased)
	in.watch()
	return true
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

// yield returns the tasks that asynq does not have, and gives the others back. Those have been taken back from their earlier runs, because
// this server was silent, and their handlers have not returned yet. asynq tells runs by their tasks, so it would end the new run with
// the old one. Another server may take such a task at once, and this one after a pause.
func (in *Intake) yield(tasks []Task) (others []Task) {
	others = tasks[:0]
	for _, t := range tasks {
		if !in.slots.works(name{t.Queue, t.ID}) {
			others = append(others, t)
			continue
		}
		in.begin(true)
		time.AfterFunc(unclaimed, func() {
			defer in.end()
			in.giveBack([]Task{t})
		})
	}
	return others
}

// giveBack puts tasks back that asynq has not taken, without their locks, the oldest last, so that it is at the head.
func (in *Intake) giveBack(tasks []Task) {
	if len(tasks) == 0 {
		return
	}
	var locks *colocated.Release // of the last one
	in.repeat(func(ctx context.Context) error {
		for ; len(tasks) > 0; tasks, locks = tasks[:len(tasks)-1], nil {
			t := tasks[len(tasks)-1]
			if locks == nil {
				locks = in.left(t)
			}
			queue := keysOf([]string{t.Queue})
			keys := append([]string{asynqwire.Hash(t.Queue, t.ID), queue[2], queue[3], queue[0]}, locks.Keys...)
			reply, err := in.place(t.Queue).run(ctx, giveBackScript, keys, t.Run, t.ID, time.Now().UnixNano(), flag(t.Woken), locks.Owner)
			if passes(err) {
				locks.Late()
				return err
			}
			in.Hear(t.Queue)
			if err == nil {
				locks.Answered(colocated.Outcome{Notify: reply != int64(0)})
			} else if locks.Owner != "" {
				locks.Run(ctx, true)
			}
		}
		return nil
	}, func() { // asynq recovers them, and their locks end with their TTLs
		for _, t := range tasks {
			in.left(t).Late()
		}
	})
}
