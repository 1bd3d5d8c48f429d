package line

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/colocated"
)

// Refused is a task that was fetched while another holder had one of its keys.
type Refused struct {
	Task Task
	Type string
	// Attempt is its retry count, and Left how many retries it has left.
	Attempt, Left int
	Woken         bool
	// Sure reports whether its keys are those that its handler would lock now, as far as that is known before its run.
	Sure func() bool
	*colocated.Refused
}

// A Parker decides about the tasks of one type that were refused when they were fetched, as their handler would after
// an attempt to lock the keys.
type Parker interface {
	// ParkFetched calls [Run.Park], and perhaps [Run.Follow], and returns true, or leaves the task to its handler.
	ParkFetched(r *Run, f Refused) bool
	// Adopt makes a lease of the locks that a task was taken with; nil if its run has to see what they are good for.
	Adopt(t Task, kind string, taken *colocated.Taken) colocated.Held
	// LockFetched makes one attempt to lock the keys of a task whose locks are not on its Redis. It returns a lease or who has refused
	// it; neither after any other error, which its run will meet, too.
	LockFetched(ctx context.Context, t Task, kind string, keys []string) (colocated.Held, *colocated.Refused)
	// Wait says which tasks the script that fetches them parks without asking, and how.
	Wait() colocated.Wait
	// Keys returns a function that returns the keys of a task before its run, none if the run has to say; nil if they are
	// never known before.
	Keys() func(*asynq.Task) []string
	// Parked is told of tasks that were parked so, which differ in their IDs and places. All of them have been refused for
	// the first time.
	Parked(f Refused, places []Parked)
}

// noParker is that of a type that has several.
type noParker struct{}

func (noParker) ParkFetched(*Run, Refused) bool { return false }

func (noParker) Adopt(Task, string, *colocated.Taken) colocated.Held { return nil }

func (noParker) LockFetched(context.Context, Task, string, []string) (colocated.Held, *colocated.Refused) {
	return nil, nil
}

func (noParker) Wait() (none colocated.Wait) { return none }

func (noParker) Keys() func(*asynq.Task) []string { return nil }

func (noParker) Parked(Refused, []Parked) {}

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
	return p.names.encoded(find(t))
}

// keysNow does what keysIn does, on a goroutine of its own: a function of users may end that.
func (p *parkers) keysNow(message string) (keys string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		keys = p.keysIn(message)
	}()
	<-done
	return keys
}

// of returns the Parker of a type, or nil.
func (p *parkers) of(kind string) Parker {
	known, _ := p.byType.Load(kind)
	parker, _ := known.(Parker)
	return parker
}
