package line

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// sweepFrom is how many runs are remembered before runs that will not be acknowledged any more are removed.
	sweepFrom = 1024
	// endedFor is how long after its end a run may still be acknowledged: asynq tries until its lease ends.
	endedFor = time.Minute
	// unclaimedFor is how long a run is remembered whose handler does not call End.
	unclaimedFor = time.Hour
)

// runs are the runs of tasks on the servers of this process.
type runs struct {
	foreign atomic.Bool // asynq has sent a script that is not known
	plain   atomic.Bool // then tasks are still fetched, by asynq's own script
	counted sync.Once   // logs once that a Config counts waiting as a failure
	refused sync.Once   // logs once that Redis refuses to park

	mu    sync.Mutex
	tasks map[Task]*Run
	sweep int // how many runs there may be before the next sweep
}

// of returns the run of a task, or nil.
func (all *runs) of(t Task) *Run {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.tasks[t]
}

// add notes a run. It replaces an earlier run of its task, which asynq has given up.
func (all *runs) add(r *Run) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.tasks == nil {
		all.tasks, all.sweep = map[Task]*Run{}, sweepFrom
	}
	all.tasks[r.task] = r
	if len(all.tasks) < all.sweep {
		return
	}
	maps.DeleteFunc(all.tasks, func(_ Task, r *Run) bool { return r.isOver(time.Now()) })
	all.sweep = max(2*len(all.tasks), sweepFrom)
}

// drop forgets a run, unless its task has begun another one.
func (all *runs) drop(r *Run) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.tasks[r.task] == r {
		delete(all.tasks, r.task)
	}
}

// all returns the runs.
func (all *runs) all() []*Run {
	all.mu.Lock()
	defer all.mu.Unlock()
	return slices.Collect(maps.Values(all.tasks))
}

// isOver reports whether a run will not be acknowledged any more.
func (r *Run) isOver(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.claimed {
		return now.Sub(r.since) > unclaimedFor
	}
	return !r.ended.IsZero() && now.Sub(r.ended) > endedFor && !r.inBackground
}
