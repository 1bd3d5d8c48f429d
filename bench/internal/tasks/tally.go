package tasks

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/railtoken/railtoken/bench/internal/server"
)

// Tally counts what happens to the tasks of one run. It is safe for use by many goroutines at the same time.
type Tally struct {
	tasks []Task
	// computes has Work compute.
	computes bool

	over  chan struct{} // closed when every task is done
	alarm func() (until func(context.Context, time.Time) error, end func())

	running context.Context // ends with the run
	end     context.CancelCauseFunc

	mu     sync.Mutex
	frozen bool
	states []state // of the tasks
	inWork map[string]int
	last   time.Time
	result Result
}

// state is what has happened to a task: when it was begun first, and when it was done; zero when it was not.
type state struct {
	runs        int
	began, done time.Time
}

// NewTally returns a tally for the tasks, of which nothing has happened yet.
func NewTally(tasks []Task) *Tally {
	t := &Tally{
		tasks: tasks, over: make(chan struct{}), alarm: server.NewAlarm, states: make([]state, len(tasks)), inWork: map[string]int{},
	}
	t.running, t.end = context.WithCancelCause(context.Background())
	for _, task := range tasks {
		if !task.Aside {
			t.result.Tasks++
		}
	}
	return t
}

// Over is closed when every task that is not aside is done.
func (t *Tally) Over() <-chan struct{} { return t.over }

// Run notes that a worker has begun to run task n.
func (t *Tally) Run(n int) { t.note(func() { t.states[n].runs++ }) }

// Parked notes that a task was parked.
func (t *Tally) Parked() { t.note(func() { t.result.Parked++ }) }

// Fault notes an error that belongs to no contestant's plan.
func (t *Tally) Fault(err error) { t.note(func() { t.result.Err = err.Error() }) }

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

// End ends the context of the handlers.
func (t *Tally) End() { t.end(errStopped) }

// Context returns a context that ends with the run: that of all handlers.
func (t *Tally) Context() context.Context { return t.running }

// Work does the work of task n, which is to wait or to compute, and notes whether another task of the key does so too. A context that
// ends breaks it off.
func (t *Tally) Work(ctx context.Context, n int) error {
	t.enter(n)
	err := t.work(ctx, t.tasks[n].Work)
	t.leave(n, err == nil)
	return err
}

func (t *Tally) work(ctx context.Context, d time.Duration) error {
	if t.computes {
		return compute(ctx, d)
	}
	until, end := t.alarm()
	defer end()
	return until(ctx, time.Now().Add(d))
}

func (t *Tally) enter(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := t.tasks[n].Key
	t.inWork[key]++
	if t.frozen {
		return
	}
	if t.inWork[key] > 1 {
		t.result.Overlaps++
	}
	if t.states[n].began.IsZero() {
		t.states[n].began = time.Now()
	}
}

func (t *Tally) leave(n int, worked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inWork[t.tasks[n].Key]--
	switch {
	case !worked || t.frozen:
	case !t.states[n].done.IsZero():
		t.result.Again++
	default:
		t.states[n].done = time.Now()
		if t.tasks[n].Aside {
			t.result.AsideDone++
			return
		}
		t.last = t.states[n].done
		t.result.Done++
		if t.result.Done == t.result.Tasks {
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
	since := func(at time.Time) time.Duration {
		if at.IsZero() {
			return 0
		}
		return at.Sub(began)
	}
	r := t.result
	r.Finished, r.Took = r.Done == r.Tasks, time.Since(began)
	if r.Finished && !t.last.IsZero() {
		r.Took = since(t.last)
	}
	for _, s := range t.states {
		r.Runs, r.Began, r.At = append(r.Runs, s.runs), append(r.Began, since(s.began)), append(r.At, since(s.done))
	}
	slices.Sort(r.Runs)
	return r
}
