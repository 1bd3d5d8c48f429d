package line

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/colocated"
)

// Refused is a task that was fetched while another holder had one of its keys.
type Refused struct {
	Task Task
	Type string
	// Attempt is its retry count, and Left how many retries it has left.
	Attempt, Left int
	*colocated.Refused
}

// A Parker decides about the tasks of one type that were refused when they were fetched, as their handler would after
// an attempt to lock the keys.
type Parker interface {
	// ParkFetched calls [Run.Park] and returns true, or leaves the task to its handler.
	ParkFetched(r *Run, f Refused) bool
	// Wait says which tasks the script that fetches them parks without asking, and how.
	Wait() colocated.Wait
	// Keys returns a function that returns the keys of a task before its run, none if the run has to say; nil if they are
	// never known before.
	Keys() func(*asynq.Task) []string
	// Parked is told of tasks that were parked so, which differ in their IDs and places. All of them have been refused for
	// the first time.
	Parked(f Refused, places []Parked)
}

// parkers are the Parkers of types of tasks. It is safe for concurrent use.
type parkers struct{ byType sync.Map }

// noParker is that of a type that has several.
type noParker struct{}

func (noParker) ParkFetched(*Run, Refused) bool   { return false }
func (noParker) Wait() (none colocated.Wait)      { return none }
func (noParker) Keys() func(*asynq.Task) []string { return nil }
func (noParker) Parked(Refused, []Parked)         {}

// learn notes the Parker of a type, and returns the one that counts. A type whose handlers have different ones has none.
func (p *parkers) learn(kind string, parker Parker) Parker {
	if known, _ := p.byType.LoadOrStore(kind, parker); known != parker {
		parker = noParker{}
		p.byType.Store(kind, parker)
	}
	return parker
}

// keysIn returns the keys of a task by its message, encoded; "" if they are not known.
func (p *parkers) keysIn(message string) string {
	parker := p.of(textOf(message, typeField))
	if parker == nil {
		return ""
	}
	find, t := parker.Keys(), taskIn(message)
	if find == nil || t == nil {
		return ""
	}
	return encoded(find(t))
}

// of returns the Parker of a type, or nil.
func (p *parkers) of(kind string) Parker {
	known, _ := p.byType.Load(kind)
	parker, _ := known.(Parker)
	return parker
}

// parkFetched parks a task that was refused when it was fetched, without a run: see [broker.Options].
func (e *tasks) parkFetched(f broker.Fetched, parked func()) bool {
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
	parks := r.parkInBackground(r.parking, r.since.Add(fetchedLease))
	r.mu.Unlock()
	if !parks {
		e.runs.drop(r)
	}
	return parks
}

// fetchedLease limits how long a fetched task belongs to this server: asynq's lease on it, less the difference that the
// clocks of servers may have.
const fetchedLease = 25 * time.Second

// parkingAtFetch has tasks parked by the script that fetches them, and woken by the one that acknowledges them.
func (e *Engine) parkingAtFetch() *broker.Parking {
	// The keys of that script are not those that the functions expect.
	constants := fmt.Sprintf("local KEYS, index, owed, idle_waiters, owed_for, head_look, lost_after, left_after = {}, %q, %q, %d, %d, %d, %d, %d\n",
		e.index, e.owed(), idleWaiters.Milliseconds(), owedAfter.Milliseconds(), headLook.Milliseconds(), int(LostAfter.Seconds()), int(LeftAfter.Seconds()))
	return &broker.Parking{
		Source:   constants + composed("return park, wakeReleased, parse, leaveWaiters, admit, begin, depart"),
		Unserved: e.notFetched, Parked: (*tasks)(e).parkedAtFetch,
	}
}

// notFetched returns the queues of which no server fetched tasks when the list was last read.
func (e *Engine) notFetched() []string {
	queues, _ := e.lastUnserved()
	return queues
}

// parkedAtFetch tells the Parkers of tasks that a script has parked. It does not wait for them, because another fetch may
// follow.
func (e *tasks) parkedAtFetch(groups []broker.Parked) {
	tell := func(context.Context) {
		for _, g := range groups {
			parker := e.parkers.of(g.Type)
			if parker == nil {
				continue
			}
			places := make([]Parked, len(g.IDs))
			for i, id := range g.IDs {
				places[i] = Parked{
					Conflict: Conflict{Count: 1, First: g.First}, Task: Task{Queue: g.Queue, ID: id}, Looked: true,
					Waiters: g.Ahead + i + 1, Ahead: g.Ahead + i,
				}
			}
			parker.Parked(Refused{Type: g.Type, Refused: g.Refused}, places)
		}
	}
	if !(*Engine)(e).background(e.closing, tellTimeout, tell) {
		tell(e.closing)
	}
}

// tellTimeout is nominal, because the Parkers make no calls to Redis.
const tellTimeout = time.Minute
