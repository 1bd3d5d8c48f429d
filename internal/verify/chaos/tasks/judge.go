package tasks

import (
	"slices"
	"time"

	"github.com/railtoken/railtoken/middleware"
)

// Window is a time in which something happened that may do damage which railtoken does not promise to keep off.
type Window struct{ From, To time.Time }

// slack is how much of what was answered a failover may lose: what had not reached the replica.
const slack = time.Second

// Facts are what there is to judge.
type Facts struct {
	Tasks []Task
	Sent  map[int]Sent
	Gone  []Gone
	Books Books
	// Failovers last until all sentinels agree and the old master follows. They lose what was written meanwhile to a master that was not to
	// remain it, and what had not reached its replica before. Steps let locks end early.
	Failovers, Steps []Window
	// Succeeded is how many runs have succeeded by asynq's counters.
	Succeeded int
	// Left is what remained in the end: tasks in queues or in the archive, and names that say who waits or holds a key.
	Left int
}

func (w Window) meets(other Window) bool { return w.To.After(other.From) && w.From.Before(other.To) }

// until returns the window with more time at its end.
func (w Window) until(after time.Duration) Window { return Window{w.From, w.To.Add(after)} }

// mayBeLost reports whether a failover may have lost a task that was sent within a time, or its position.
func (f Facts) mayBeLost(sent Window) bool {
	return slices.ContainsFunc(f.Failovers, func(w Window) bool { return Window{w.From.Add(-slack), w.To}.meets(sent) })
}

// mayMeet reports whether a lease that was believed in within a time may have ended: one that a failover has lost is believed in until it
// is not renewed, and one that a clock has ended, too.
func (f Facts) mayMeet(believed Window) bool {
	return slices.ContainsFunc(append(slices.Clone(f.Failovers), f.Steps...), func(w Window) bool { return w.until(TTL + slack).meets(believed) })
}

// Judge judges them.
func Judge(f Facts) (r Row) {
	r.Tasks, r.Gone, r.Left = len(f.Tasks), len(f.Gone), f.Left
	r.Repeats, r.Refused, r.Failovers = f.Books.Repeats, f.Books.Refused, len(f.Failovers)
	for _, n := range f.Books.Runs {
		r.Runs += n
	}
	f.judgeTasks(&r)
	f.judgeKeys(&r)
	f.judgeOrder(&r)
	for _, m := range f.Books.Meetings {
		if f.mayMeet(Window{m.Left, m.Left}) {
			r.Explained++
		} else {
			r.Met++
			r.Notes.add("two holders: %+v", m)
		}
	}
	return r
}

// judgeTasks judges whether each task has had its effect once, and whether asynq's counters know of it.
func (f Facts) judgeTasks(r *Row) {
	effects := map[int]int{}
	for _, key := range f.Books.Effects {
		for _, e := range key {
			effects[e.Task]++
		}
		r.Effects += len(key)
	}
	tries, uncertain := 0, 0
	for _, t := range f.Tasks {
		switch n := effects[t.Number]; {
		case n == 0:
			r.Lost++
			r.Notes.add("without an effect: %+v, sent %+v", t, f.Sent[t.Number])
		case n > 1:
			r.Twice++
		}
		tries += f.Sent[t.Number].Tries
		if f.mayBeLost(f.Sent[t.Number].Window) {
			uncertain++
		}
	}
	for _, g := range f.Gone {
		if !f.mayBeLost(g.Sent) {
			r.Lost++
			r.Notes.add("gone without a reason: %+v, sent %+v", f.Tasks[g.Task], g.Sent)
		}
	}
	// No success without a run that has succeeded, and none of a task that was not sent. One for each task, but of those that were done
	// on a master that was replaced, before the replica knew of them.
	most, least := min(f.Books.Succeeded, tries), len(f.Tasks)-uncertain-len(f.Gone)
	r.Counted = f.Succeeded
	r.Miscounted = max(0, f.Succeeded-most) + max(0, least-f.Succeeded)
}

// judgeKeys judges what the ledger has kept of each key.
func (f Facts) judgeKeys(r *Row) {
	for key, effects := range f.Books.Effects {
		r.LostUpdates += len(effects) - f.Books.Revisions[key]
		seen := map[int64]int{}
		for i, e := range effects {
			if other, there := seen[e.Token]; there && other != e.Task {
				r.Tokens++
			}
			seen[e.Token] = e.Task
			if i > 0 && e.Token < effects[i-1].Token {
				r.Tokens++
			}
		}
	}
}

// judgeOrder judges whether the effects of a key with an order are in that in which its tasks were sent. A task that a failover may have
// lost may be late, and so may one whose order says so, because a run of it has failed.
func (f Facts) judgeOrder(r *Row) {
	gone := map[int]bool{}
	for _, g := range f.Gone {
		gone[g.Task] = true
	}
	for _, effects := range f.Books.Effects {
		last, seen := -1, map[int]bool{}
		for _, e := range effects {
			order, sent := Kinds[f.Tasks[e.Task].Kind].Order, f.Sent[e.Task]
			failed := order == middleware.FIFO && f.Books.Runs[e.Task] > 1
			switch {
			case order == middleware.BestEffort, seen[e.Task]:
			case e.Task > last:
				last = e.Task
			case gone[e.Task], sent.Outside, f.mayBeLost(sent.Window), failed:
				r.LateAllowed++
			default:
				r.Disordered++
				r.Notes.add("late: %+v, sent %+v, after task %d", f.Tasks[e.Task], sent, last)
			}
			seen[e.Task] = true
		}
	}
}
