package intake

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/railtoken/railtoken/internal/asynqwire"
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

// admission takes the locks of tasks that a fetch has taken, whose keys were found.
type admission struct {
	in    *Intake
	most  int // slots that are kept for them
	tasks []Task
	keys  []string
	args  []any
	reader
	leased time.Time // when the leases of the tasks began
}

// admission returns that of some tasks of a fetch.
func (in *Intake) admission(f *fetch, tasks []Task) *admission {
	a := &admission{in: in, most: len(tasks), tasks: tasks, reader: reader{call: f.call, names: f.names, asking: in.ask()}, leased: f.sent}
	a.keys = append(slices.Clone(f.keys[:len(f.keys)-1]), asynqwire.Prefix(f.names[0])+"admitted:"+f.call)
	a.args = append(make([]any, 0, 12+5*len(tasks)), f.call, 0, 0)
	a.args = append(a.args, a.values()...)
	a.args = append(a.args, time.Now().UnixNano(), in.parking.unserved(), 0)
	for _, t := range tasks {
		a.args = append(a.args, slices.Index(a.names, t.Queue)+1, t.ID, t.Run[len(f.call)+1:], t.Recorded, t.Message[:2+len(typeOf(t.Message))])
	}
	return a
}

// admit takes the locks of some tasks of a fetch.
func (f *fetch) admit(tasks []Task) (more bool) { return f.in.admit(f, tasks) }

// admitLater does so in the background.
func (f *fetch) admitLater(tasks []Task) (more bool) {
	f.in.begin(true)
	go func() {
		defer f.in.end()
		if f.in.admit(f, tasks) {
			f.in.slots.arrive()
		}
	}()
	return false
}

// admit carries it out. It returns once the tasks are in memory or parked, or the call is to be repeated in the background.
func (in *Intake) admit(f *fetch, tasks []Task) (more bool) {
	a := in.admission(f, tasks)
	reply, err := in.run(context.Background(), in.admitScript, a.keys, a.args...)
	if !passes(err) {
		return a.answered(reply, err)
	}
	in.repeat(func(ctx context.Context) error {
		args := slices.Clone(a.args)
		args[mostArg] = int(lateCall.Seconds())
		reply, err := in.run(ctx, in.admitScript, a.keys, args...)
		if passes(err) {
			return err
		}
		a.answered(reply, err)
		return nil
	}, func() { in.slots.answered(a.most, nil, time.Time{}) }) // asynq recovers them
	return false
}

// answered gives the tasks to asynq, but for those that were parked or are in another run. Without their locks, their runs
// try to take them. It reports whether there may be others behind some that were parked or are being parked.
func (a *admission) answered(reply any, err error) (more bool) {
	values, _ := reply.([]any)
	if err != nil || len(values) < len(a.tasks) {
		values = make([]any, len(a.tasks))
	}
	if len(values) > len(a.tasks) && a.in.parking != nil {
		if parked, _, err := a.parked(values[len(a.tasks)]); err == nil {
			a.in.parking.Parked(parked)
		}
	}
	kept := make([]Task, 0, len(a.tasks))
	for i, t := range a.tasks {
		if values[i] == int64(0) {
			continue
		}
		number, _ := strconv.Atoi(t.Run[len(a.call)+1:])
		t.Taken, t.Refused = a.locked(&t, number, values[i])
		kept = append(kept, t)
	}
	return a.in.came(a.most, kept, a.leased) || len(kept) < len(a.tasks)
}
