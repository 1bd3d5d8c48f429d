package line

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

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
	parking      *parking
	claimed      bool      // its handler calls End
	ended        time.Time // when its handler returned
	judged       bool      // it returned in time: asynq acknowledges its result
	inBackground bool      // it is parked in the background
	back         sync.Once // what has become of that is noted
	putBack      bool
	taken        *colocated.Taken   // locks that came with the task, until its handler claims them
	release      *colocated.Release // of the locks, until the acknowledgement or the timer takes it
}

// parking is what becomes of a task at the end of its run.
type parking struct {
	key    string // that the task waits for; none when empty
	opts   ParkOptions
	parked func(Parked)
	told   sync.Once
	over   func() // is called when a park in the background has ended; may be nil
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
	return r != nil && strings.HasPrefix(r.sequence, SequenceKey(key)+" ")
}

// ByTimer reports whether the task has waited and was brought back by its timer.
func (r *Run) ByTimer(attempt int) bool { return r != nil && !r.woken && r.Met(attempt).Count > 0 }

// Woken reports whether the task was woken for this run.
func (r *Run) Woken() bool { return r != nil && r.woken }

// Took notes that the run has locked keys. If it was woken for another key, the next waiter of that key is woken, unless the
// run may still take it.
func (r *Run) Took(keys []string, more bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owes == "" {
		return
	}
	if slices.ContainsFunc(keys, func(key string) bool { return WaitersKey(key) == r.owes }) {
		r.owes = ""
	} else if !more {
		r.passWake()
	}
}

// Passed notes that the wake of the run was passed on.
func (r *Run) Passed() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owes = ""
}

// passWake passes on the wake of a run that does not take the key for which it was woken. The caller holds the mutex.
func (r *Run) passWake() {
	key, ok := KeyOf(r.owes)
	r.owes = ""
	if !ok {
		return
	}
	e := r.queue
	e.background(e.closing, followUpLimit, func(ctx context.Context) {
		w, err := e.WakeNext(ctx, key, WakeOptions{})
		e.repaired(key, w, false)
		if err != nil {
			e.log.WarnContext(ctx, "passing on a wake failed; the waiters' timers will bring them back", "task", r.task.String(),
				"error", err)
		}
	})
}

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

// End notes that the task's handler has returned. If asynq gave up the run before, because Redis could not be reached
// for 30 s, no acknowledgement comes. A task that is to be parked or postponed is then put back in the background as
// soon as Redis can be reached again.
func (r *Run) End(ctx context.Context) {
	if r == nil {
		return
	}
	current := r.current()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.judged = time.Now(), ctx.Err() == nil
	if r.parking != nil && ctx.Err() != nil && current {
		r.parkInBackground(r.parking, time.Time{})
	}
}

// current reports whether the run is neither acknowledged nor replaced by another run of the task on this server.
func (r *Run) current() bool { return r.queue.runs.of(r.task) == r }

// parkInBackground parks or postpones the task in the background, unless another server has it by then: asynq's lease
// on it ends at lease. It reports false when the Engine is closed. The caller holds the mutex.
func (r *Run) parkInBackground(p *parking, lease time.Time) bool {
	if r.inBackground {
		return true
	}
	r.inBackground = r.queue.background(r.queue.parking, backgroundLimit, func(ctx context.Context) {
		wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(backgroundFirst),
			backoff.WithMaxInterval(backgroundMost), backoff.WithMaxElapsedTime(backgroundLimit))
		err := backoff.Retry(func() error {
			if !r.current() {
				return nil
			}
			err := r.carryOut(ctx, p, !time.Now().Before(lease))
			switch {
			case errors.Is(err, ErrGone):
				return nil
			case permanent(err):
				return backoff.Permanent(err)
			}
			return err
		}, backoff.WithContext(wait, ctx))
		r.outcome(ctx, err)
		r.queue.runs.drop(r)
		if p.over != nil {
			p.over()
		}
	})
	return r.inBackground
}

// outcome notes what has become of a park in the background, once: a failure is logged.
func (r *Run) outcome(ctx context.Context, err error) {
	r.back.Do(func() {
		if err != nil {
			r.queue.log.WarnContext(ctx, "a task that has only waited could not be put back; asynq recovers it", "task",
				r.task.String(), "error", err)
		}
	})
}

// givenUp logs which tasks could not be put back before the Engine was closed. A call that still hangs does not log it in
// time: the process may end.
func (e *Engine) givenUp() {
	for _, r := range e.runs.all() {
		r.mu.Lock()
		under := r.inBackground
		r.mu.Unlock()
		if under && r.current() {
			r.outcome(context.WithoutCancel(e.parking), e.parking.Err())
		}
	}
}

const (
	// backgroundFirst and backgroundMost are the pauses between the attempts to park a task while Redis cannot be
	// reached, and backgroundLimit is how long they go on.
	backgroundFirst = 500 * time.Millisecond
	backgroundMost  = 2 * time.Second
	backgroundLimit = time.Hour
)

// permanent reports whether Redis refuses a call for what it asks, and will refuse it again.
func permanent(err error) bool {
	var refusal redis.Error
	if !errors.As(err, &refusal) || redis.IsMaxClientsError(err) {
		return false
	}
	kind, _, _ := strings.Cut(refusal.Error(), " ")
	return kind == "ERR" || kind == "NOPERM" || kind == "WRONGTYPE"
}

// carryOut parks or postpones the task. A task that Redis refuses to park is postponed.
func (r *Run) carryOut(ctx context.Context, p *parking, late bool) error {
	opts := p.opts
	opts.nonce, opts.late = r.nonce, late
	opts.deadline, opts.unique = deadlineOf(r.message), textOf(r.message, uniqueField)
	if p.key == "" {
		return r.queue.postpone(ctx, r.task, opts)
	}
	place, err := r.queue.Park(ctx, r.task, p.key, opts)
	if permanent(err) { // postponing needs only the rules that asynq itself needs
		r.queue.runs.refused.Do(func() {
			r.queue.log.ErrorContext(ctx,
				"Redis refuses to park tasks: no wake finds them, and each waits for its timer; "+
					"give the Redis user the commands and keys that railtoken needs", "error", err)
		})
		return r.queue.postpone(ctx, r.task, opts)
	}
	if err == nil && p.parked != nil && place.Count > 0 { // otherwise the task has run since
		p.told.Do(func() { p.parked(place) })
	}
	return err
}
