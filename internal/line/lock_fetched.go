package line

import (
	"context"
	"time"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/pipeline"
)

// lockMost bounds an attempt to lock the keys of a task in memory: a slot is kept for it, and asynq's lease on it runs.
const lockMost = time.Second

// Lock has the keys of tasks locked before asynq gets them, all at the same time, where the locks are not on the Redis of the
// tasks. It calls locked for each of these tasks later, from other goroutines, and returns the others.
func (e *tasks) Lock(all []broker.Fetched, locked func(broker.Fetched)) (others []broker.Fetched) {
	if e.locks != nil {
		return all // the scripts do it
	}
	for _, f := range all {
		kind := textOf(f.Message, typeField)
		ttl, _ := e.types.TTL(kind)
		parker := e.parkers.of(kind)
		if ttl == 0 || parker == nil || passed(deadlineOf(f.Message), time.Now()) {
			others = append(others, f)
			continue
		}
		go func() {
			defer func() { locked(f) }() // a key function of users may end the goroutine
			pipeline.GrowStack()
			e.lock(&f, kind, parker)
		}()
	}
	return others
}

// lock makes one attempt to lock the keys of a task.
func (e *tasks) lock(f *broker.Fetched, kind string, parker Parker) {
	if f.Recorded == "" {
		f.Recorded = e.parkers.keysIn(f.Message)
	}
	keys := decoded(f.Recorded)
	if len(keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(e.closing, lockMost)
	defer cancel()
	f.Held, f.Refused = parker.LockFetched(ctx, Task{Queue: f.Queue, ID: f.ID}, kind, keys)
}
