package line

import (
	"context"
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/pipeline"
)

// lockMost bounds an attempt to lock the keys of a task in memory: a slot is kept for it, and asynq's lease on it runs.
const lockMost = time.Second

// Lock has the keys of tasks locked before asynq gets them, all at the same time, where the locks are not on the Redis of the
// tasks. It calls locked for each of these tasks later, from other goroutines, and returns the others. Of tasks with the same
// keys, one that was woken comes first, and then those that were fetched first.
func (e *tasks) Lock(all []broker.Fetched, locked func(broker.Fetched)) (others []broker.Fetched) {
	if e.locks != nil && !e.spread {
		return all // the scripts do it
	}
	same := map[string][]broker.Fetched{} // by their keys
	var order []string
	for _, f := range all {
		kind := textOf(f.Message, typeField)
		ttl, inOrder := e.types.TTL(kind)
		if ttl == 0 || e.locks != nil && (inOrder != "" || f.Taken != nil || f.Refused != nil) || passed(deadlineOf(f.Message), time.Now()) {
			others = append(others, f)
			continue
		}
		if f.Recorded == "" {
			f.Recorded = e.parkers.keysNow(f.Message)
		}
		if keys := decoded(f.Recorded); len(keys) == 0 || e.locks != nil && (*Engine)(e).Together(f.Queue, keys...) {
			others = append(others, f)
			continue
		}
		if same[f.Recorded] == nil {
			order = append(order, f.Recorded)
		}
		same[f.Recorded] = append(same[f.Recorded], f)
	}
	for _, keys := range order {
		tasks := same[keys]
		slices.SortStableFunc(tasks, func(a, b broker.Fetched) int { return wokenFirst(a) - wokenFirst(b) })
		go e.lockEach(tasks, locked)
	}
	return others
}

func wokenFirst(f broker.Fetched) int {
	if f.Woken {
		return 0
	}
	return 1
}

// lockEach makes an attempt for each of some tasks, one after the other, until one fails. A Locker of users may end the
// goroutine.
func (e *tasks) lockEach(all []broker.Fetched, locked func(broker.Fetched)) {
	defer func() {
		for _, f := range all {
			locked(f)
		}
	}()
	pipeline.GrowStack()
	for len(all) > 0 {
		e.lock(&all[0])
		f := all[0]
		all = all[1:]
		locked(f)
		if f.Held == nil && f.Refused == nil {
			return // the locks cannot be reached
		}
	}
}

// lock makes one attempt to lock the keys of a task.
func (e *tasks) lock(f *broker.Fetched) {
	kind := textOf(f.Message, typeField)
	parker := e.parkers.of(kind)
	if parker == nil {
		return
	}
	ctx, cancel := context.WithTimeout(e.closing, lockMost)
	defer cancel()
	f.Held, f.Refused = parker.LockFetched(ctx, Task{Queue: f.Queue, ID: f.ID}, kind, decoded(f.Recorded))
}
