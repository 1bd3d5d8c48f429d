package intake

import (
	"sync"
	"time"
)

// rest is the minimum time between two runs of a task on a server. asynq's heartbeater learns of the end of the first one
// a few microseconds after its acknowledgement, or after the heartbeat that is under way.
const rest = 2 * time.Millisecond

// rests are the tasks whose last run asynq may still take for the present one. asynq v0.26 notes runs by the IDs of
// their tasks. If its heartbeater learned of the end of a run after the next run of the task had begun, it would forget
// that run: it would extend its lease no longer, and a recoverer would run the task a second time beside it. asynq does
// not say what its heartbeater knows. But that waits only for the next heartbeat, whose calls go through the Conn. rests
// is safe for concurrent use.
type rests struct {
	mu    sync.Mutex
	tasks map[string]time.Time // by ID: when the last run was over; the zero time while it is acknowledged
	over  []string             // those that are over, in that order

	calls       int       // of the present heartbeat that are under way
	began, last time.Time // when the last heartbeat began, and when a call of it was answered
}

func newRests() *rests { return &rests{tasks: map[string]time.Time{}} }

// acknowledging notes that asynq acknowledges a run.
func (r *rests) acknowledging(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tasks[id] = time.Time{}
}

// acknowledged notes that asynq has its answer.
func (r *rests) acknowledged(id string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.over) > 0 && r.left(r.over[0], now) == 0 {
		if at, ok := r.tasks[r.over[0]]; ok && !at.IsZero() {
			delete(r.tasks, r.over[0])
		}
		r.over = r.over[1:]
	}
	r.tasks[id] = now
	r.over = append(r.over, id)
}

// beat notes that a call of a heartbeat begins. answered is called with its end.
func (r *rests) beat(now time.Time) (answered func(time.Time)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == 0 && now.Sub(r.last) > rest { // otherwise it is the next call of the same one
		r.began = now
	}
	r.calls++
	return func(now time.Time) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls--
		r.last = now
	}
}

// of returns for how long a task is to rest at least; zero if its next run may begin. learned says that asynq's
// heartbeater has learned of the ends of all runs that are acknowledged.
func (r *rests) of(id string, now time.Time, learned bool) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if learned && !r.tasks[id].IsZero() {
		return 0
	}
	return r.left(id, now)
}

// left does what of does while that is not known. The caller holds the mutex.
func (r *rests) left(id string, now time.Time) time.Duration {
	over, ok := r.tasks[id]
	switch {
	case !ok:
		return 0
	case over.IsZero():
		return rest
	case r.began.After(over.Add(rest)): // asynq knew before
		return 0
	case r.calls > 0:
		return rest
	case r.last.After(over):
		over = r.last
	}
	return max(rest-now.Sub(over), 0)
}
