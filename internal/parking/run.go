package parking

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"
)

// Run is one run of a task on a server of this process, from its fetch to its acknowledgement. A nil Run is one of an
// asynq whose scripts are not known: nothing can be parked.
type Run struct {
	queue   *Engine
	task    Task
	nonce   string
	message string // as it was fetched
	met     Conflict
	tries   string // the retry count that met is about
	woken   bool
	since   time.Time

	mu      sync.Mutex
	parking *parking
	claimed bool      // its handler tells of its end
	ended   time.Time // when its handler returned
	judged  bool      // it returned in time: asynq acknowledges what it has returned
	goesOn  bool      // it is parked in the background
	putBack bool
}

// parking is what is to become of a task at the end of its run.
type parking struct {
	key    string // that it waits for; of none when empty
	opts   ParkOptions
	parked func(Parked)
	told   sync.Once
}

// ErrNotOurs reports that an Engine knows no run of a task: the asynq server that fetched it does not use [Engine.Conn].
var ErrNotOurs = errors.New("delayqueue: the asynq server does not use the client of package attach or worker: " +
	"give it Attached.Client")

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
	if e.runs.foreign.Load() {
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
	if r == nil || r.tries != strconv.Itoa(attempt) {
		return Conflict{}
	}
	return r.met
}

// ByTimer reports whether the task has waited, and was not woken.
func (r *Run) ByTimer(attempt int) bool { return r != nil && !r.woken && r.Met(attempt).Count > 0 }

// PutBack reports whether asynq has put the task back into its queue, as it does when the server shuts down, and before
// it cancels the run.
func (r *Run) PutBack() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.putBack
}

// Park has the task wait for key as soon as its handler has returned: the acknowledgement that asynq sends then parks
// it, whatever it says. parked, which may be nil, is told of its place.
func (r *Run) Park(key string, opts ParkOptions, parked func(Parked)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parking = &parking{key: key, opts: opts, parked: parked}
}

// Withdraw undoes Park and Postpone: what asynq acknowledges counts.
func (r *Run) Withdraw() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parking = nil
}

// Postpone has the task tried again after a delay as soon as its handler has returned.
func (r *Run) Postpone(delay time.Duration) { r.Park("", ParkOptions{RetryAfter: delay}, nil) }

// End notes that the task's handler has returned. When asynq has given the run up before, because Redis could not be
// reached for 30 s, and the task has only waited (it is to be parked or put off), no acknowledgement comes, and it is
// put back in the background as soon as Redis can be reached again.
func (r *Run) End(ctx context.Context) {
	if r == nil {
		return
	}
	current := r.current()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.judged = time.Now(), ctx.Err() == nil
	if r.parking != nil && ctx.Err() != nil && current {
		r.goOn(r.parking, nil, time.Time{})
	}
}

// current reports whether asynq has neither acknowledged the run nor begun another one here.
func (r *Run) current() bool { return r.queue.runs.of(r.task) == r }

// goOn parks or puts off the task in the background, unless somebody else has it by then: asynq's lease on it ends at
// lease, and another server may have the task afterwards. It reports false when the Queue is closed. The caller holds
// the mutex.
func (r *Run) goOn(p *parking, message []byte, lease time.Time) bool {
	if r.goesOn {
		return true
	}
	r.goesOn = r.queue.background(r.queue.parking, goOnLimit, func(ctx context.Context) {
		wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(goOnFirst), backoff.WithMaxInterval(goOnMost),
			backoff.WithMaxElapsedTime(goOnLimit))
		err := backoff.Retry(func() error {
			if !r.current() {
				return nil
			}
			err := r.carryOut(ctx, p, message, !time.Now().Before(lease))
			switch {
			case errors.Is(err, ErrGone):
				return nil
			case lasting(err):
				return backoff.Permanent(err)
			}
			return err
		}, backoff.WithContext(wait, ctx))
		if err != nil {
			r.queue.log.WarnContext(ctx, "a task that has only waited could not be put back; asynq recovers it", "task",
				r.task.String(), "error", err)
		}
		r.queue.runs.drop(r)
	})
	return r.goesOn
}

const (
	// goOnFirst and goOnMost are the pauses between the attempts to park a task while Redis cannot be reached, and
	// goOnLimit how long they go on. asynq recovers no task meanwhile.
	goOnFirst = 500 * time.Millisecond
	goOnMost  = 2 * time.Second
	goOnLimit = time.Hour
)

// lasting reports whether Redis refuses a call for what it asks: it will refuse it again.
func lasting(err error) bool {
	var refusal redis.Error
	if !errors.As(err, &refusal) || redis.IsMaxClientsError(err) {
		return false
	}
	kind, _, _ := strings.Cut(refusal.Error(), " ")
	return kind == "ERR" || kind == "NOPERM" || kind == "WRONGTYPE"
}

// carryOut parks or puts off the task. One that Redis refuses to park is put off.
func (r *Run) carryOut(ctx context.Context, p *parking, message []byte, late bool) error {
	opts := p.opts
	opts.message, opts.nonce, opts.late = message, r.nonce, late
	opts.deadline, opts.unique = deadlineOf(r.message), textOf(r.message, uniqueField)
	if p.key == "" {
		return r.queue.postpone(ctx, r.task, opts)
	}
	place, err := r.queue.Park(ctx, r.task, p.key, opts)
	if lasting(err) { // what asynq itself needs suffices to put it off
		r.queue.runs.refused.Do(func() {
			r.queue.log.ErrorContext(ctx,
				"Redis refuses to park tasks: no wake finds them, and each waits for its timer; "+
					"give the Redis user the commands and keys that railtoken needs", "error", err)
		})
		return r.queue.postpone(ctx, r.task, opts)
	}
	if err == nil && p.parked != nil && place.Count > 0 { // else the task has run since
		p.told.Do(func() { p.parked(place) })
	}
	return err
}
