package instruments

import (
	"context"
	"sync"
	"time"
)

// The servers of which the label of the gauge unreachable tells.
const (
	serverTasks = "tasks"
	serverLocks = "locks"
)

// reach is the Reach of a [middleware.Event].
type reach func(context.Context) (tasks, locks time.Duration, ok bool)

// reaches are those of the workers that run in this process. They are safe for concurrent use.
type reaches struct {
	mu  sync.Mutex
	all map[int]reach
	n   int // workers so far
}

func (r *reaches) add(one reach) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[int]reach{}
	}
	r.all[r.n] = one
	r.n++
}

// read returns the longest times of all workers, and nothing if there is none. It forgets those that are shut down.
func (r *reaches) read(ctx context.Context) []Measurement {
	r.mu.Lock()
	defer r.mu.Unlock()
	var asked sync.WaitGroup
	var mu sync.Mutex
	var tasks, locks time.Duration
	found, over := false, []int(nil)
	for i, reach := range r.all {
		asked.Go(func() {
			t, l, ok := reach(ctx)
			mu.Lock()
			defer mu.Unlock()
			if !ok {
				over = append(over, i)
				return
			}
			found, tasks, locks = true, max(tasks, t), max(locks, l)
		})
	}
	asked.Wait()
	for _, i := range over {
		delete(r.all, i)
	}
	if !found {
		return nil
	}
	return []Measurement{unreachable.of(tasks.Seconds(), serverTasks), unreachable.of(locks.Seconds(), serverLocks)}
}
