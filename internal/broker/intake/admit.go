package intake

import "slices"

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
			if t := &tasks[i]; t.Recorded == "" {
				t.Recorded = in.keysIn(t.Message)
				t.found = t.Recorded != ""
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

// mostGranted is more than the tasks of a call: those that are admitted have numbers beyond it.
const mostGranted = 500

// admitted gives tasks of earlier fetches to asynq, but for those that were parked or are in another run. Without their
// locks, their runs try to take them. It returns the rest of the reply.
func (f *fetch) admitted(reply any) (rest any) {
	if len(f.found) == 0 {
		return reply
	}
	values, ok := reply.([]any)
	answers := make([]any, len(f.found))
	if last := len(values) - 1; last >= 0 {
		if list, _ := values[last].([]any); len(list) >= len(f.found) {
			answers, values = list, values[:last]
		}
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
	f.in.slots.admitted(len(f.found))
	f.in.came(len(f.found), kept, f.found[0].leased)
	if !ok {
		return reply
	}
	return values
}
