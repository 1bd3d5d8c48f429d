package instruments

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// The outcomes of attempts and conflicts.
const (
	acquired    = "acquired"
	held        = "held"
	unavailable = "unavailable"

	outcomeWaited = "waited"
	outcomeFailed = "failed"
	outcomeLimit  = "limit"

	outcomeCompleted = "completed" // without a run: see middleware.Complete

	outcomeCancelled = "cancelled" // of a wait; runs have a counter of their own
)

// Parked is the outcome of a run whose task waits on.
const Parked = "parked"

// The values of labels that a task's counters have. They are created at zero with the first task of its type and queue that gets its keys: a
// rate or an increase does not see the first event of a series that begins with it.
var (
	outcomes = []string{Parked, outcomeWaited, outcomeFailed, outcomeLimit, outcomeCompleted}
	reasons  = []string{reasonTaken, reasonExpired, reasonMaxHold, reasonDeposed}
	causes   = []middleware.WakeCause{
		middleware.ByRelease, middleware.ByRepair, middleware.ByTimer,
	}
)

// Events turns events into what they add to an adapter's series S. The series of tasks that get their keys without a
// conflict are resolved once, all others with each event. It is safe for concurrent use.
type Events[S any] struct {
	resolve func(*Instrument, []string) S

	mu    sync.Mutex                            // to add a task
	begun atomic.Pointer[map[ofTask]*series[S]] // never changed in place: nearly all events only read it
}

// NewEvents returns Events. resolve returns the series of a counter or histogram with a value for each of its labels. It
// must be safe for concurrent use, and must create a counter that does not exist.
func NewEvents[S any](resolve func(*Instrument, []string) S) *Events[S] {
	return &Events[S]{resolve: resolve}
}

// ofTask identifies the counters of a task.
type ofTask struct{ kind, queue string }

// series are those to which every task adds.
type series[S any] struct {
	acquired, hold S
	acquire        atomic.Pointer[ofBackend[S]] // of the last attempt: nearly always it is the same backend
}

type ofBackend[S any] struct {
	backend string
	acquire S
}

// Sample is what an event adds to a series.
type Sample[S any] struct {
	Series S
	Value  float64
}

// Most is how many samples nearly every event has at most.
const Most = 5

// Append appends to all what an event adds to counters and histograms. It takes no memory for a task that gets its keys
// without a conflict and releases them, except for the first of its type and queue.
func (known *Events[S]) Append(all []Sample[S], e *middleware.Event) []Sample[S] {
	switch e.Kind {
	case middleware.Acquired:
		return known.appendAcquired(all, e)
	case middleware.Released:
		if s := known.series(ofTask{e.Type, e.Task.Queue}); s != nil {
			return append(all, Sample[S]{s.hold, e.Held.Seconds()})
		}
		return known.append(all, hold.of(e.Held.Seconds(), valid(e.Type), queueOf(e.Task.Queue)))
	default:
		return known.append(all, of(e, valid(e.Type), queueOf(e.Task.Queue))...)
	}
}

// append appends measurements of series that are not kept.
func (known *Events[S]) append(all []Sample[S], measured ...Measurement) []Sample[S] {
	for _, m := range measured {
		all = append(all, Sample[S]{known.resolve(m.Instrument, m.Labels), m.Value})
	}
	return all
}

func (known *Events[S]) appendAcquired(all []Sample[S], e *middleware.Event) []Sample[S] {
	task := ofTask{e.Type, e.Task.Queue}
	s := known.series(task)
	if s == nil {
		s = known.begin(task)
		all = known.append(all, zeros(valid(task.kind), queueOf(task.queue))...)
	}
	all = append(all, Sample[S]{s.acquired, 1})
	if e.Waited > 0 || e.Woken > 0 || e.WakeLost {
		all = known.append(all, waited(e, valid(task.kind), queueOf(task.queue))...)
	}
	if e.Took > 0 {
		all = append(all, Sample[S]{known.acquire(s, e.Backend), e.Took.Seconds()})
	}
	return all
}

// acquire returns the series of a backend.
func (known *Events[S]) acquire(s *series[S], backend string) S {
	if last := s.acquire.Load(); last != nil && last.backend == backend {
		return last.acquire
	}
	made := &ofBackend[S]{backend, known.resolve(acquire, []string{valid(backend)})}
	s.acquire.Store(made)
	return made.acquire
}

// series returns those of a task whose counters exist, or nil.
func (known *Events[S]) series(t ofTask) *series[S] {
	if all := known.begun.Load(); all != nil {
		return (*all)[t]
	}
	return nil
}

// begin adds a task.
func (known *Events[S]) begin(t ofTask) *series[S] {
	known.mu.Lock()
	defer known.mu.Unlock()
	all := map[ofTask]*series[S]{}
	if before := known.begun.Load(); before != nil {
		maps.Copy(all, *before)
	}
	if all[t] == nil {
		kind, queue := valid(t.kind), queueOf(t.queue)
		all[t] = &series[S]{
			acquired: known.resolve(attempts, []string{kind, queue, acquired}), hold: known.resolve(hold, []string{kind, queue}),
		}
		known.begun.Store(&all)
	}
	return all[t]
}

func of(e *middleware.Event, kind, queue string) []Measurement {
	switch e.Kind {
	case middleware.Refused:
		return []Measurement{waits.of(1, kind, queue)}
	case middleware.Ended:
		if _, ok := errors.AsType[*middleware.CancelledError](e.Err); ok {
			return []Measurement{cancelled.of(1, kind, queue)}
		}
		return []Measurement{attempts.of(1, kind, queue, held), conflicts.of(1, kind, queue, OutcomeOf(e.Err))}
	case middleware.Unavailable:
		return []Measurement{attempts.of(1, kind, queue, unavailable)}
	case middleware.Woke:
		all := []Measurement{wakes.of(1, queueOf(e.Next.Queue), valid(string(e.Cause)))}
		if e.WakeLost {
			all = append(all, wakesLost.of(1, queueOf(e.Next.Queue)))
		}
		return all
	case taskrun.Superseded:
		return []Measurement{superseded.of(1, kind, queue)}
	case taskrun.Recovered:
		return []Measurement{recovered.of(1, queue)}
	case middleware.Lost:
		return []Measurement{lost.of(1, kind, queue, ReasonOf(e.Err))}
	case middleware.Parked: // an Ended tells of a run
		if e.Fetched {
			return []Measurement{attempts.of(1, kind, queue, held), conflicts.of(1, kind, queue, Parked)}
		}
	case middleware.Untold:
		return []Measurement{untold.of(1, kind, queue)}
	case middleware.Acquired, middleware.Released: // see Append
	}
	return nil
}

// zeros returns the counters of a task's events, with nothing to add.
func zeros(kind, queue string) []Measurement {
	all := []Measurement{attempts.of(0, kind, queue, unavailable), cancelled.of(0, kind, queue)}
	for _, outcome := range outcomes {
		all = append(all, conflicts.of(0, kind, queue, outcome))
	}
	for _, reason := range reasons {
		all = append(all, lost.of(0, kind, queue, reason))
	}
	for _, cause := range causes {
		all = append(all, wakes.of(0, queue, string(cause)))
	}
	return append(all, wakesLost.of(0, queue), untold.of(0, kind, queue), superseded.of(0, kind, queue), recovered.of(0, queue))
}

// waited returns what the wait of a task adds when it ends with the task's keys.
func waited(e *middleware.Event, kind, queue string) (all []Measurement) {
	if e.Waited > 0 {
		all = append(all, wait.of(e.Waited.Seconds(), kind, queue), conflicts.of(1, kind, queue, outcomeWaited))
	}
	if e.WakeLost {
		all = append(all, wakesLost.of(1, queue))
	}
	if e.Woken > 0 {
		all = append(all, wake.of(e.Woken.Seconds(), kind, queue))
	}
	return all
}

// OutcomeOf returns what became of a task whose run has ended in conflict, as a label: [Parked] if it waits on.
func OutcomeOf(err error) string {
	if _, ok := errors.AsType[*middleware.CancelledError](err); ok {
		return outcomeCancelled
	}
	conflict, ok := errors.AsType[*middleware.ConflictError](err)
	switch {
	case ok && conflict.Limit != delayqueue.NoLimit:
		return outcomeLimit
	case ok && conflict.Outcome == middleware.Park:
		return Parked
	case ok && conflict.Outcome == middleware.Complete:
		return outcomeCompleted
	}
	return outcomeFailed
}

// The reasons of lost leases, as labels.
const (
	reasonTaken   = "taken"
	reasonExpired = "expired"
	reasonMaxHold = "max_hold"
	reasonDeposed = "deposed"
)

// ReasonOf returns why a lease was lost, as a label.
func ReasonOf(err error) string {
	loss, _ := errors.AsType[*locking.LostError](err)
	if loss == nil {
		return reasonExpired
	}
	switch loss.Reason {
	case locking.LossTaken:
		return reasonTaken
	case locking.LossMaxHold:
		return reasonMaxHold
	case locking.LossDeposed:
		return reasonDeposed
	default:
		return reasonExpired
	}
}

// queueOf returns the label of a queue: its lanes count as one.
func queueOf(queue string) string { return valid(lanes.Base(queue)) }

// valid returns a label's value without bytes that no telemetry library accepts.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
