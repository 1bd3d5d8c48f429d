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

// Conn returns the Redis client that an asynq server must speak through, so that its tasks can be parked. Each server
// has a Conn of its own.
func (e *Engine) Conn(opts asynqconn.Options) *asynqconn.Conn {
	opts.Tasks, opts.Foreign = (*tasks)(e), &e.runs.foreign
	if opts.Logger == nil {
		opts.Logger = e.log
	}
	return asynqconn.New(e.client, opts)
}

// errNotFound is what asynq's own scripts answer when the run of a task is another's by now.
var errNotFound = errors.New("NOT FOUND")

// tasks is a Queue as a Conn sees it.
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

// Acknowledge parks a task that is to be parked. When Redis cannot be reached it goes on by itself: asynq would give up
// when its lease ends. When Redis refuses to park it, asynq's own script is sent.
func (e *tasks) Acknowledge(ctx context.Context, a asynqconn.Acknowledgement) (answered bool, err error) {
	r := e.runs.of(Task{Queue: a.Queue, ID: a.ID})
	if r == nil {
		return false, nil
	}
	r.mu.Lock()
	p, judged := r.parking, r.judged
	r.putBack = a.Requeues()
	if a.Repeated { // it is that of an earlier run, or asynq's lease has ended just now
		if p != nil && !r.ended.IsZero() {
			r.goOn(p, nil, time.Time{})
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
		message = nil // it has one retry too many
		if judged {   // else it was cancelled, or its time was over
			e.runs.counted.Do(func() {
				e.log.ErrorContext(ctx,
					"a waiting task would have counted as failed: set IsFailure and RetryDelayFunc of asynq's Config with the functions of package middleware")
			})
		}
	}
	if err = r.carryOut(ctx, p, message, false); err == nil || errors.Is(err, ErrGone) {
		e.runs.drop(r)
		return true, nil
	}
	if lasting(err) && (a.Script == "retry" || a.Script == "archive") {
		e.runs.drop(r)
		return false, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	lease, _ := ctx.Deadline() // of asynq
	if r.goOn(p, message, lease) {
		err = nil
	}
	return true, err
}

const (
	// fewRuns is how many runs are remembered before those are looked for that asynq has given up without a word.
	fewRuns = 1024
	// unheard is how long after its end a run may still be acknowledged: asynq tries until its lease ends. silent is
	// how long a run is remembered whose handler does not tell of its end: it asks for no place to wait.
	unheard = time.Minute
	silent  = time.Hour
)

// runs are the runs of tasks on the servers of this process.
type runs struct {
	foreign atomic.Bool // asynq's scripts are not known
	counted sync.Once   // tells of a Config that counts waiting as a failure
	refused sync.Once   // tells that Redis refuses to park

	mu    sync.Mutex
	tasks map[Task]*Run
	sweep int // how many there may be before the next look for those that nobody will acknowledge
}

// of returns the run of a task, or nil.
func (all *runs) of(t Task) *Run {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.tasks[t]
}

// add notes a run, in place of an earlier one of its task that was given up.
func (all *runs) add(r *Run) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.tasks == nil {
		all.tasks, all.sweep = map[Task]*Run{}, fewRuns
	}
	all.tasks[r.task] = r
	if len(all.tasks) < all.sweep {
		return
	}
	maps.DeleteFunc(all.tasks, func(_ Task, r *Run) bool { return r.isOver(time.Now()) })
	all.sweep = max(2*len(all.tasks), fewRuns)
}

// drop forgets a run, unless its task has begun another one.
func (all *runs) drop(r *Run) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.tasks[r.task] == r {
		delete(all.tasks, r.task)
	}
}

// isOver reports whether no acknowledgement of a run that has ended comes any more.
func (r *Run) isOver(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.claimed {
		return now.Sub(r.since) > silent
	}
	return !r.ended.IsZero() && now.Sub(r.ended) > unheard && !r.goesOn
}
