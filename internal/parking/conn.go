package parking

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railtoken/railtoken/internal/asynqconn"
)

// Conn returns the Redis client of an asynq server whose tasks are to be parked. Each server needs a Conn of its own.
func (e *Engine) Conn(opts asynqconn.Options) *asynqconn.Conn {
	opts.Tasks, opts.Foreign = (*tasks)(e), &e.runs.foreign
	opts.Background = func(limit time.Duration, do func(context.Context)) bool {
		return e.background(e.closing, limit, do)
	}
	if opts.Logger == nil {
		opts.Logger = e.log
	}
	return asynqconn.New(e.client, opts)
}

// errNotFound is what asynq's own scripts answer when the task has begun another run.
var errNotFound = errors.New("NOT FOUND")

// tasks is an Engine as a Conn sees it.
type tasks Engine

// Fetched notes the run of a task.
func (e *tasks) Fetched(f asynqconn.Fetched) {
	r := &Run{
		queue: (*Engine)(e), task: Task{Queue: f.Queue, ID: f.ID}, nonce: f.Run, message: f.Message,
		tries: f.Retried, woken: f.Woken, since: time.Now(),
	}
	r.met.Count, _ = strconv.Atoi(f.Conflicts)
	if us, err := strconv.ParseInt(f.First, 10, 64); err == nil && us > 0 {
		r.met.First = time.UnixMicro(us)
	}
	e.runs.add(r)
}

// Acknowledge parks a task for which [Run.Park] was called. If Redis cannot be reached, it continues in the background,
// because asynq gives up when its lease ends. If Redis refuses to park the task, asynq's own script is sent.
func (e *tasks) Acknowledge(ctx context.Context, a asynqconn.Acknowledgement) (answered bool, err error) {
	r := e.runs.of(Task{Queue: a.Queue, ID: a.ID})
	if r == nil {
		return false, nil
	}
	r.mu.Lock()
	p, judged := r.parking, r.judged
	r.putBack = a.Requeues()
	if a.Repeated { // it belongs to an earlier run, or asynq's lease has just ended
		if p != nil && !r.ended.IsZero() {
			r.parkInBackground(p, nil, time.Time{})
		}
		r.mu.Unlock()
		return true, errNotFound
	}
	r.mu.Unlock()
	if p == nil || a.Requeues() {
		e.runs.drop(r)
		return false, nil
	}
	if strings.HasPrefix(a.Script, "done") || strings.HasPrefix(a.Script, "mark") {
		e.log.ErrorContext(ctx,
			"a waiting task was reported as done: a middleware around the lock has swallowed its error; it still waits",
			"task", r.task.String())
	}
	message := a.Message
	if a.Counted {
		message = nil // its retry count is one too high
		if judged {   // otherwise it was cancelled, or its time was over
			e.runs.counted.Do(func() {
				e.log.ErrorContext(ctx,
					"a waiting task would have counted as failed: set IsFailure and RetryDelayFunc of asynq's Config with "+
						"the functions of package middleware")
			})
		}
	}
	if err = r.carryOut(ctx, p, message, false); err == nil || errors.Is(err, ErrGone) {
		e.runs.drop(r)
		return true, nil
	}
	if permanent(err) && (a.Script == "retry" || a.Script == "archive") {
		e.runs.drop(r)
		return false, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	lease, _ := ctx.Deadline() // asynq's lease ends
	if r.parkInBackground(p, message, lease) {
		err = nil
	}
	return true, err
}

const (
	// sweepFrom is how many runs are remembered before runs that will not be acknowledged any more are removed.
	sweepFrom = 1024
	// endedFor is how long after its end a run may still be acknowledged: asynq tries until its lease ends.
	endedFor = time.Minute
	// unclaimedFor is how long a run is remembered whose handler does not call End.
	unclaimedFor = time.Hour
)

// runs are the runs of tasks on the servers of this process.
type runs struct {
	foreign atomic.Bool // asynq's scripts are unknown
	counted sync.Once   // logs once that a Config counts waiting as a failure
	refused sync.Once   // logs once that Redis refuses to park

	mu    sync.Mutex
	tasks map[Task]*Run
	sweep int // how many runs there may be before the next sweep
}

// of returns the run of a task, or nil.
func (all *runs) of(t Task) *Run {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.tasks[t]
}

// add notes a run. It replaces an earlier run of its task, which asynq has given up.
func (all *runs) add(r *Run) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.tasks == nil {
		all.tasks, all.sweep = map[Task]*Run{}, sweepFrom
	}
	all.tasks[r.task] = r
	if len(all.tasks) < all.sweep {
		return
	}
	maps.DeleteFunc(all.tasks, func(_ Task, r *Run) bool { return r.isOver(time.Now()) })
	all.sweep = max(2*len(all.tasks), sweepFrom)
}

// drop forgets a run, unless its task has begun another one.
func (all *runs) drop(r *Run) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.tasks[r.task] == r {
		delete(all.tasks, r.task)
	}
}

// isOver reports whether a run will not be acknowledged any more.
func (r *Run) isOver(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.claimed {
		return now.Sub(r.since) > unclaimedFor
	}
	return !r.ended.IsZero() && now.Sub(r.ended) > endedFor && !r.inBackground
}
