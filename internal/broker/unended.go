package broker

import (
	"maps"
	"sync"
	"time"
)

// unended are runs whose acknowledgements have failed: asynq repeats them, by the IDs of their tasks, while its leases last. A
// repetition must end no other run. It is safe for concurrent use.
type unended struct {
	mu   sync.Mutex
	runs map[string]unendedRun
}

type unendedRun struct {
	run string
	at  time.Time
}

// repeatedFor is how long a failed acknowledgement may be repeated: longer than a lease of asynq's.
const repeatedFor = time.Minute

// put notes the run of a task.
func (u *unended) put(queue, id, run string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.runs == nil {
		u.runs = map[string]unendedRun{}
	}
	now := time.Now()
	maps.DeleteFunc(u.runs, func(_ string, r unendedRun) bool { return now.Sub(r.at) > repeatedFor })
	u.runs[queue+"/"+id] = unendedRun{run, now}
}

// take returns the run of a task and forgets it; "" if it is not known.
func (u *unended) take(queue, id string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	run := u.runs[queue+"/"+id].run
	delete(u.runs, queue+"/"+id)
	return run
}
