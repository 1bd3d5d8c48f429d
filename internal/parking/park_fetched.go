package parking

import (
	"context"
	_ "embed"
	"strconv"
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/asynqconn"
	"github.com/railtoken/railtoken/internal/fused"
)

//go:embed lua/park_fetched.lua
var parkFetchedSource string

// A Parker is the middleware of a type of tasks that are parked in the call that fetches them, if their keys are held.
type Parker interface {
	// Wait says how such a task waits; the zero Wait leaves all of them to their handlers.
	Wait() fused.Wait
	// Fetched is told of each that was parked. Its Run has ended.
	Fetched(r *Run, f ParkedTask)
}

// ParkedTask is a task that was parked as it was fetched.
type ParkedTask struct {
	Parked
	Type    string
	Keys    []string
	Attempt int   // its retry count
	Held    error // a *locking.HeldError with the key that it waits for
}

// parkers are the Parkers of types of tasks. It is safe for concurrent use.
type parkers struct{ byType sync.Map }

// noParker is that of a type that has several.
type noParker struct{}

func (noParker) Wait() (none fused.Wait)  { return none }
func (noParker) Fetched(*Run, ParkedTask) {}

// learn notes the Parker of a type, and returns the one that counts. A type whose handlers have different ones has none.
func (p *parkers) learn(kind string, parker Parker) Parker {
	if known, _ := p.byType.LoadOrStore(kind, parker); known != parker {
		parker = noParker{}
		p.byType.Store(kind, parker)
	}
	return parker
}

// of returns the Parker of a type.
func (p *parkers) of(kind string) Parker {
	known, _ := p.byType.Load(kind)
	if parker, ok := known.(Parker); ok {
		return parker
	}
	return noParker{}
}

// parkFetched returns how tasks are parked that are fetched.
func (e *Engine) parkFetched() *asynqconn.Parking {
	return &asynqconn.Parking{
		Source: taskSource + recordSource + waitersSource + indexSource + stateSource + parkFetchedSource + "return park, settle",
		Index:  e.index, Idle: idleWaiters, Parked: (*tasks)(e).parked,
	}
}

// parked tells the Parkers of tasks that were parked. It does not wait for them: another fetch may follow.
func (e *tasks) parked(all []asynqconn.Parked) {
	tell := func(context.Context) {
		for _, p := range all {
			r := e.runOf(p.Task)
			f := ParkedTask{
				Parked: Parked{
					Conflict: Conflict{Count: p.Conflicts}, Task: r.task, Looked: true, Waiters: p.Waiters, Ahead: p.Ahead, Timer: p.Timer,
				},
				Type: p.Type, Keys: p.Keys, Attempt: p.Attempt, Held: p.Held,
			}
			if us, err := strconv.ParseInt(p.First, 10, 64); err == nil {
				f.First = time.UnixMicro(us)
			}
			e.parkers.of(f.Type).Fetched(r, f)
		}
	}
	if !(*Engine)(e).background(e.closing, parkedTimeout, tell) {
		tell(e.closing)
	}
}

// parkedTimeout is nominal: the Parkers make no calls to Redis.
const parkedTimeout = time.Minute
