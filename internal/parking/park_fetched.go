package parking

import (
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/asynqconn"
	"github.com/railtoken/railtoken/internal/fused"
)

// Refused is a task that was fetched while another holder had one of its keys.
type Refused struct {
	Task Task
	Type string
	// Attempt is its retry count, and Left how many retries it has left.
	Attempt, Left int
	*fused.Refused
}

// A Parker decides about the tasks of one type that were refused when they were fetched, as their handler would after
// an attempt to lock the keys. It calls [Run.Park] and returns true, or leaves the task to its handler.
type Parker interface {
	ParkFetched(r *Run, f Refused) bool
}

// parkers are the Parkers of types of tasks. It is safe for concurrent use.
type parkers struct{ byType sync.Map }

// noParker is that of a type that has several.
type noParker struct{}

func (noParker) ParkFetched(*Run, Refused) bool { return false }

// learn notes the Parker of a type. A type whose handlers have different ones has none.
func (p *parkers) learn(kind string, parker Parker) {
	if known, _ := p.byType.LoadOrStore(kind, parker); known != parker {
		p.byType.Store(kind, noParker{})
	}
}

// of returns the Parker of a type, or nil.
func (p *parkers) of(kind string) Parker {
	known, _ := p.byType.Load(kind)
	parker, _ := known.(Parker)
	return parker
}

// parkFetched parks a task that was refused when it was fetched, without a run: see [asynqconn.Options].
func (e *tasks) parkFetched(f asynqconn.Fetched, parked func()) bool {
	kind := textOf(f.Message, typeField)
	parker := e.parkers.of(kind)
	if parker == nil {
		return false
	}
	if passed(deadlineOf(f.Message), time.Now()) {
		return false // asynq ends it without a run of its handler
	}
	r := e.runOf(f)
	attempt := int(varintOf(f.Message, retriedField))
	if !parker.ParkFetched(r, Refused{
		Task: r.task, Type: kind, Attempt: attempt, Left: max(int(varintOf(f.Message, retryField))-attempt, 0),
		Refused: f.Refused,
	}) {
		return false
	}
	e.runs.add(r)
	r.mu.Lock()
	r.ended, r.parking.over = r.since, parked
	parks := r.parkInBackground(r.parking, nil, r.since.Add(fetchedLease))
	r.mu.Unlock()
	if !parks {
		e.runs.drop(r)
	}
	return parks
}

// fetchedLease is for how long a task that was fetched is this server's: asynq's lease on it, less what the clocks of
// servers may differ by.
const fetchedLease = 25 * time.Second
