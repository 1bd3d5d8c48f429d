package instruments

import (
	"errors"
	"strings"
	"sync"

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

// Events knows for which tasks the counters exist. The zero value is ready, and it is safe for concurrent use.
type Events struct{ begun sync.Map } // of ofTask

// ofTask are the labels of a task's counters.
type ofTask struct{ kind, queue string }

// Of returns what an event adds to counters and histograms.
func (all *Events) Of(e middleware.Event) []Measurement {
	kind, queue := valid(e.Type), valid(e.Task.Queue)
	if e.Kind != middleware.Acquired {
		return of(e, kind, queue)
	}
	if _, known := all.begun.Load(ofTask{kind, queue}); known {
		return ofAcquired(e, kind, queue)
	}
	all.begun.Store(ofTask{kind, queue}, true)
	return append(zeros(kind, queue), ofAcquired(e, kind, queue)...)
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
	case middleware.Released:
		return []Measurement{hold.of(e.Held.Seconds(), kind, queue)}
	case middleware.Acquired, middleware.Parked: // see ofAcquired; an Ended follows
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

func ofAcquired(e middleware.Event, kind, queue string) []Measurement {
	all := make([]Measurement, 0, 5)
	all = append(all, attempts.of(1, kind, queue, acquired))
	if e.Waited > 0 {
		all = append(all, wait.of(e.Waited.Seconds(), kind, queue), conflicts.of(1, kind, queue, outcomeWaited))
	}
	if e.Woken > 0 {
		all = append(all, wake.of(e.Woken.Seconds(), kind, queue))
	}
	if e.Took > 0 {
		all = append(all, acquire.of(e.Took.Seconds(), valid(e.Backend)))
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
