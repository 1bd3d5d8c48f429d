package instruments

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/railtoken/railtoken/delayqueue"
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
)

// Parked is the outcome of a run whose task waits on.
const Parked = "parked"

// The values of labels that a task's counters have. They are created at zero with the first task of its type and queue that gets its keys: a
// rate or an increase does not see the first event of a series that begins with it.
var (
	outcomes = []string{Parked, outcomeWaited, outcomeFailed, outcomeLimit}
	reasons  = []string{reasonTaken, reasonExpired, reasonMaxHold, reasonDeposed}
	causes   = []middleware.WakeCause{
		middleware.ByRelease, middleware.ByStandby, middleware.ByRepair, middleware.ByTimer,
	}
)

// Events keeps the labels of the tasks whose counters exist. The zero value is ready, and it is safe for concurrent use.
type Events struct {
	mu    sync.Mutex                         // to add a task
	begun atomic.Pointer[map[ofTask]*labels] // never changed in place: nearly all events only read it
}

// ofTask identifies the counters of a task.
type ofTask struct{ kind, queue string }

// labels are those of the metrics that every task has, made once.
type labels struct {
	task, acquired []string
	backend        atomic.Pointer[[]string] // of the last attempt: nearly always it is the same one
}

// of returns the label of a backend.
func (l *labels) of(backend string) []string {
	if last := l.backend.Load(); last != nil && (*last)[0] == backend {
		return *last
	}
	made := []string{valid(backend)}
	l.backend.Store(&made)
	return made
}

// Most is how many measurements nearly every event has at most.
const Most = 5

// Append appends to all what an event adds to counters and histograms. It takes no memory for a task that gets its keys
// without a conflict and releases them, except for the first of its type and queue. The labels must not be changed.
func (known *Events) Append(all []Measurement, e middleware.Event) []Measurement {
	if e.Kind != middleware.Acquired && e.Kind != middleware.Released {
		return append(all, of(e, valid(e.Type), valid(e.Task.Queue))...)
	}
	task := ofTask{e.Type, e.Task.Queue}
	l := known.labels(task)
	if l == nil && e.Kind == middleware.Acquired {
		l = known.begin(task)
		all = append(all, zeros(l.task[0], l.task[1])...)
	} else if l == nil {
		l = newLabels(task)
	}
	if e.Kind == middleware.Released {
		return append(all, Measurement{hold, e.Held.Seconds(), l.task})
	}
	return appendAcquired(all, e, l)
}

// labels returns those of a task whose counters exist, or nil.
func (known *Events) labels(t ofTask) *labels {
	if all := known.begun.Load(); all != nil {
		return (*all)[t]
	}
	return nil
}

// begin adds a task.
func (known *Events) begin(t ofTask) *labels {
	known.mu.Lock()
	defer known.mu.Unlock()
	all := map[ofTask]*labels{}
	if before := known.begun.Load(); before != nil {
		maps.Copy(all, *before)
	}
	if all[t] == nil {
		all[t] = newLabels(t)
		known.begun.Store(&all)
	}
	return all[t]
}

func newLabels(t ofTask) *labels {
	kind, queue := valid(t.kind), valid(t.queue)
	return &labels{task: []string{kind, queue}, acquired: []string{kind, queue, acquired}}
}

func of(e middleware.Event, kind, queue string) []Measurement {
	switch e.Kind {
	case middleware.Refused:
		return []Measurement{waits.of(1, kind, queue)}
	case middleware.Ended:
		return []Measurement{attempts.of(1, kind, queue, held), conflicts.of(1, kind, queue, OutcomeOf(e.Err))}
	case middleware.Unavailable:
		return []Measurement{attempts.of(1, kind, queue, unavailable)}
	case middleware.Woke:
		return []Measurement{wakes.of(1, valid(e.Next.Queue), valid(string(e.Cause)))}
	case middleware.Lost:
		return []Measurement{lost.of(1, kind, queue, ReasonOf(e.Err))}
	case middleware.Acquired, middleware.Released, middleware.Parked: // see Append; an Ended follows
	}
	return nil
}

// zeros returns the counters of a task's events, with nothing to add.
func zeros(kind, queue string) []Measurement {
	all := []Measurement{attempts.of(0, kind, queue, unavailable)}
	for _, outcome := range outcomes {
		all = append(all, conflicts.of(0, kind, queue, outcome))
	}
	for _, reason := range reasons {
		all = append(all, lost.of(0, kind, queue, reason))
	}
	for _, cause := range causes {
		all = append(all, wakes.of(0, queue, string(cause)))
	}
	return all
}

func appendAcquired(all []Measurement, e middleware.Event, l *labels) []Measurement {
	all = append(all, Measurement{attempts, 1, l.acquired})
	if e.Waited > 0 {
		all = append(all, Measurement{wait, e.Waited.Seconds(), l.task}, conflicts.of(1, l.task[0], l.task[1], outcomeWaited))
	}
	if e.Woken > 0 {
		all = append(all, Measurement{wake, e.Woken.Seconds(), l.task})
	}
	if e.Took > 0 {
		all = append(all, Measurement{acquire, e.Took.Seconds(), l.of(e.Backend)})
	}
	return all
}

// OutcomeOf returns what became of a task whose run has ended in conflict, as a label: [Parked] if it waits on.
func OutcomeOf(err error) string {
	conflict, ok := errors.AsType[*middleware.ConflictError](err)
	switch {
	case ok && conflict.Limit != delayqueue.NoLimit:
		return outcomeLimit
	case ok && conflict.Outcome == middleware.Park:
		return Parked
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

// valid returns a label's value without bytes that no telemetry library accepts.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
