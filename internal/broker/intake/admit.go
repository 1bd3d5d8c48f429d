package intake

import (
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
)

// find notes the keys of tasks that have come without any, and returns these tasks apart from the others. It calls
// functions of users, which may end their goroutine: what they leave is for the run.
func (in *Intake) find(f *fetch, tasks []Task) (found, others []Task) {
	if in.keysIn == nil || f.locks == nil || in.isStopping() ||
		!slices.ContainsFunc(tasks, func(t Task) bool { return t.Recorded == "" }) {
		return nil, tasks
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range tasks {
			t := &tasks[i]
			if ttl, _ := f.types.TTL(typeOf(t.Message)); ttl > 0 && t.Recorded == "" {
				t.Recorded = in.keysIn(t.Message)
				t.found = t.Recorded != "" && f.reaches(t.Recorded)
			}
		}
	}()
	<-done
	others = tasks[:0]
	for _, t := range tasks {
		if t.found {
			found = append(found, t)
		} else {
			others = append(others, t)
		}
	}
	return found, others
}

// lock has tasks wait in memory while Tasks locks their keys. It returns the others, and how many of them wait.
func (in *Intake) lock(tasks []Task, leased time.Time) (others []Task, n int) {
	if in.tasks == nil || in.isStopping() || len(tasks) == 0 {
		return tasks, 0
	}
	counted := make(chan struct{})
	others = in.tasks.Lock(tasks, func(t Task) {
		defer in.end()
		<-counted
		in.slots.admitted(1)
		if leasing.Since(leased) > stale { // asynq may have recovered it
			in.slots.answered(1, nil, time.Time{})
			in.giveBack([]Task{t})
			return
		}
		if in.came(1, []Task{t}, leased) {
			in.slots.arrive() // there is a slot for another one
		}
	})
	n = len(tasks) - len(others)
	for range n {
		in.begin(true)
	}
	in.slots.admit(n)
	close(counted)
	return others, n
}

// mostGranted is more than the tasks of a call: those that are admitted have numbers beyond it.
const mostGranted = 500

// divided divides the reply to a fetch into what it says of the tasks that it has taken and the answers to those that it was
// to admit, which are nil if there are none.
func (f *fetch) divided(reply any) (rest any, answers []any) {
	answers = make([]any, len(f.found))
	values, _ := reply.([]any)
	if last := len(values) - 1; last >= 0 && len(f.found) > 0 {
		if list, _ := values[last].([]any); len(list) >= len(f.found) {
			return values[:last], list
		}
	}
	return reply, answers
}

// admitted gives tasks of earlier fetches to asynq, but for those that were parked or are in another run. Without their
// locks, their runs try to take them. It reports whether some were parked or are being parked.
func (f *fetch) admitted(answers []any) (more bool) {
	if len(f.found) == 0 {
		return false
	}
	kept := make([]Task, 0, len(f.found))
	for i, a := range f.found {
		if answers[i] == int64(0) {
			continue
		}
		t := a.Task
		t.Taken, t.Refused = f.locked(&t, mostGranted+1+i, answers[i])
		kept = append(kept, t)
	}
	n, gone := len(f.found), len(kept) < len(f.found)
	f.in.slots.admitted(n)
	if more = f.in.came(n, kept, f.found[0].leased) || gone; more {
		f.in.slots.arrive() // there is a slot for another one
	}
	return more
}
