package tasks

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Tally counts what happens to the tasks of one run. It is safe for use by many goroutines at the same time.
type Tally struct {
	tasks []Task
	over  chan struct{} // closed when every task is done

	running context.Context // ends with the run
	end     context.CancelCauseFunc

	mu       sync.Mutex
	frozen   bool
	runs     []int
	began    []time.Time // zero when it was not
	done     []time.Time // zero when it is not done
	open     int         // tasks that are not done
	inWork   map[string]int
	overlaps int
	again    int
	parked   int
	last     time.Time
	err      error
}

// NewTally returns a tally for the tasks, of which nothing has happened yet.
func NewTally(tasks []Task) *Tally {
	n := len(tasks)
	t := &Tally{
		tasks: tasks, over: make(chan struct{}), runs: make([]int, n), began: make([]time.Time, n), done: make([]time.Time, n),
		inWork: map[string]int{},
	}
	t.running, t.end = context.WithCancelCause(context.Background())
	for _, task := range tasks {
		if !task.Aside {
			t.open++
		}
	}
	return t
}

// Over is closed when every task that is not aside is done.
func (t *Tally) Over() <-chan struct{} { return t.over }

// Run notes that a worker has begun to run task n.
func (t *Tally) Run(n int) { t.note(func() { t.runs[n]++ }) }

// Parked notes that a task was parked.
func (t *Tally) Parked() { t.note(func() { t.parked++ }) }

// Fault notes an error that belongs to no contestant's plan.
func (t *Tally) Fault(err error) { t.note(func() { t.err = err }) }

// note counts, unless the counting has ended.
func (t *Tally) note(count func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.frozen {
		count()
	}
}

// errStopped ends handlers that still wait when the run is over.
var errStopped = errors.New("the run is over")

// End ends the contexts of [Tally.During].
func (t *Tally) End() { t.end(errStopped) }

// During returns a context that ends with ctx, and with the run. cancel is called after its use.
func (t *Tally) During(ctx context.Context) (during context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(t.running, func() { end(errStopped) })
	return ctx, func() {
		unlink()
		end(nil)
	}
}

// Work does the work of task n, which is to wait, and notes whether another task of the key does so too. A context that
// ends breaks it off.
func (t *Tally) Work(ctx context.Context, n int) error {
	task := t.tasks[n]
	t.enter(n)
	var err error
	if task.Work > 0 {
		timer := time.NewTimer(task.Work)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	t.leave(n, err == nil)
	return err
}

func (t *Tally) enter(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := t.tasks[n].Key
	t.inWork[key]++
	if t.inWork[key] > 1 && !t.frozen {
		t.overlaps++
	}
	if t.began[n].IsZero() && !t.frozen {
		t.began[n] = time.Now()
	}
}

func (t *Tally) leave(n int, worked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inWork[t.tasks[n].Key]--
	switch {
	case !worked || t.frozen:
	case !t.done[n].IsZero():
		t.again++
	default:
		t.done[n] = time.Now()
		if t.tasks[n].Aside {
			return
		}
		t.last = t.done[n]
		t.open--
		if t.open == 0 {
			close(t.over)
		}
	}
}

// Freeze ends the counting and returns what was counted since began. Unless all tasks are over, the time is that until
// now.
func (t *Tally) Freeze(began time.Time) Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frozen = true
	r := Result{
		Finished: t.open == 0, Took: time.Since(began), Overlaps: t.overlaps, Again: t.again, Parked: t.parked,
		Runs: slices.Sorted(slices.Values(t.runs)), Began: sinceEach(t.began, began), At: sinceEach(t.done, began),
	}
	if r.Finished && !t.last.IsZero() {
		r.Took = t.last.Sub(began)
	}
	for n, task := range t.tasks {
		done := 0
		if !t.done[n].IsZero() {
			done = 1
		}
		if task.Aside {
			r.AsideDone += done
			continue
		}
		r.Tasks++
		r.Done += done
	}
	if t.err != nil {
		r.Err = t.err.Error()
	}
	return r
}

// sinceEach returns how long after began each of the times is; 0 for those that are zero.
func sinceEach(times []time.Time, began time.Time) []time.Duration {
	all := make([]time.Duration, len(times))
	for i, at := range times {
		if !at.IsZero() {
			all[i] = at.Sub(began)
		}
	}
	return all
}
