package line

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/colocated"
)

// Run is one run of a task on a server of this process, from its fetch to its acknowledgement. Its methods are safe for
// concurrent use. A nil Run is that of an asynq whose scripts are unknown, where no task can be parked.
type Run struct {
	queue    *Engine
	task     Task
	nonce    string
	message  string // as it was fetched
	met      Conflict
	tries    int // the retry count to which met belongs
	woken    bool
	owes     string        // waiters of the key that it was woken for, until it has taken that key or has passed the wake on
	wokenFor time.Duration // when it was fetched; zero if unknown
	since    time.Time
	recorded string // the keys that were recorded with it, encoded
	sequence string // its mark when it was fetched: see head.lua

	mu           sync.Mutex
	failure      error // what asynq has got from it, unless the task waits
	atLimit      bool  // its task has waited up to a limit
	parking      *parking
	claimed      bool      // its handler calls End
	ended        time.Time // when its handler returned
	judged       bool      // it returned in time: asynq acknowledges its result
	inBackground bool      // it is parked in the background
	back         sync.Once // what has become of that is noted
	putBack      bool
	held         colocated.Held     // a lease of its keys, until its handler claims it
	taken        *colocated.Taken   // locks that came with the task, of which nobody has made a lease yet
	release      *colocated.Release // of the locks, until the acknowledgement or the timer takes it
	cancelled    *Cancellation      // of the task; nil if it is not known to be cancelled
	onCancel     func(Cancellation) // is called when it is
}

// parking is what becomes of a task at the end of its run.
type parking struct {
	key    string // that the task waits for; none when empty
	opts   ParkOptions
	parked func(Parked)
	told   sync.Once
	over   func() // is called when a park in the background has ended; may be nil
	// follow, when not nil, waits in memory for a lease of the keys. It returns nil if there is none, or ctx ends: then the task
	// is parked.
	follow  func(ctx context.Context) colocated.Held
	deliver func() bool // gives the task to asynq
}

// ErrNotOurs reports that an Engine knows no run of a task: the asynq server that runs the task does not use
// [Engine.Conn].
var ErrNotOurs = errors.New("delayqueue: the asynq server does not use the client of package attach or worker: " +
	"give it Attached.Client, and park with the Queue of that server")

// Run returns the present run of a task that a server of this process has fetched. The caller must call [Run.End]. The
// error matches [ErrNotOurs] when there is none. The Run is nil, without an error, when asynq's scripts are those of an
// unsupported version.
func (e *Engine) Run(t Task) (*Run, error) {
	r, err := e.present(t)
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.claimed = true
	}
	return r, err
}

func (e *Engine) present(t Task) (*Run, error) {
	if e.runs.plain.Load() && e.runs.foreign.Load() {
		return nil, nil
	}
	r := e.runs.of(t)
	if r == nil {
		return nil, ErrNotOurs
	}
	return r, nil
}

// Met returns what the task has met since its handler last ran. attempt is its retry count.
func (r *Run) Met(attempt int) Conflict {
	if r == nil || r.tries != attempt {
		return Conflict{}
	}
	return r.met
}

// InSequence reports whether the task was in the sequence of a key when it was fetched.
func (r *Run) InSequence(key string) bool {
	return r != nil && strings.HasPrefix(r.sequence, r.queue.names.Sequence(key)+" ")
}

// ByTimer reports whether the task has waited and was brought back by its timer.
func (r *Run) ByTimer(attempt int) bool { return r != nil && !r.woken && r.Met(attempt).Count > 0 }

// Woken reports whether the task was woken for this run.
func (r *Run) Woken() bool { return r != nil && r.woken }

// WokenFor returns how long ago the task was woken; zero if it was not, or that is not known.
func (r *Run) WokenFor() time.Duration {
	if r == nil || r.wokenFor == 0 {
		return 0
	}
	return r.wokenFor + time.Since(r.since)
}

// PutBack reports whether asynq has put the task back into its queue. It does so when the server shuts down, before it
// cancels the run.
func (r *Run) PutBack() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.putBack
}

// Park lets the task wait for key once its handler has returned: asynq's acknowledgement, whatever it says, then parks
// it. parked, when not nil, is called with its position.
func (r *Run) Park(key string, opts ParkOptions, parked func(Parked)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parking = &parking{key: key, opts: opts, parked: parked}
}

// Follow has a task that is parked without a run wait in memory first.
func (r *Run) Follow(follow func(ctx context.Context) colocated.Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parking.follow = follow
}

// Withdraw undoes Park and Postpone: asynq's acknowledgement counts.
func (r *Run) Withdraw() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parking = nil
}

// Resume does what Withdraw does, when the wait of a task is over for which Park was called in case asynq ends the run
// meanwhile. It reports false, and does nothing, if asynq has ended it: then the acknowledgement parks the task.
func (r *Run) Resume(ctx context.Context) bool {
	r.mu.Lock() // asynq ends the context of a run before it acknowledges the run, which takes the mutex
	defer r.mu.Unlock()
	if ctx.Err() != nil && !r.putBack {
		return false
	}
	r.parking = nil
	return true
}

// Waits reports whether the acknowledgement of the present run of a task will park or postpone it, whatever asynq makes
// of the error of the run.
func (e *Engine) Waits(t Task) bool {
	r := e.runs.of(t)
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.parking != nil
}

// Postpone lets asynq run the task again after a delay, once its handler has returned.
func (r *Run) Postpone(delay time.Duration) { r.Park("", ParkOptions{RetryAfter: delay}, nil) }

// current reports whether the run is neither acknowledged nor replaced by another run of the task on this server.
func (r *Run) current() bool { return r.queue.runs.of(r.task) == r }

// tasks is an Engine as a Conn sees it.
type tasks Engine

// Fetched notes the run of a task. If it has come with its locks, they are a lease of this process from now on.
func (e *tasks) Fetched(f broker.Fetched) {
	r := e.runOf(f)
	r.held = f.Held
	if f.Taken != nil {
		kind := textOf(f.Message, typeField)
		if parker := e.parkers.of(kind); parker != nil {
			r.held = parker.Adopt(r.task, kind, f.Taken)
		}
		if r.held == nil {
			r.taken = f.Taken
		}
	}
	e.runs.add(r)
}

// Left ends the run of a task that asynq has not taken, whether Fetched was called or not.
func (e *tasks) Left(f broker.Fetched) *colocated.Release {
	r := e.runs.of(Task{Queue: f.Queue, ID: f.ID})
	if r == nil || r.nonce != f.Run {
		switch {
		case f.Held != nil:
			return f.Held.Release((*Engine)(e).freed)
		case f.Taken != nil:
			return f.Taken.Release((*Engine)(e).freed)
		}
		return nil
	}
	e.runs.drop(r)
	return r.takeRelease()
}

// runOf returns the run of a task that was fetched.
func (e *tasks) runOf(f broker.Fetched) *Run {
	w := ParseWait(f.Wait)
	r := &Run{
		queue: (*Engine)(e), task: Task{Queue: f.Queue, ID: f.ID}, nonce: f.Run, message: f.Message, met: w.Conflict, sequence: f.Sequence,
		tries: w.Attempt, woken: f.Woken, wokenFor: f.WokenFor, since: time.Now(), recorded: f.Recorded,
	}
	if key, ok := w.Key(); ok && f.Woken && !w.Own {
		r.owes = r.queue.names.Waiters(key)
	}
	return r
}
