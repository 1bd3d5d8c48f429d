// Package colocated lets the scripts that fetch and acknowledge tasks take and release locks in the same call, where tasks
// and locks are on one Redis. A task then costs no call for its lock.
//
// Package locking has the locks, package intake the scripts, and package line brings them together for the
// tasks of a server. The rules for the scripts are those of model/README.md.
package colocated

import (
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
)

// Locks are locks as scripts use them. It is safe for concurrent use.
type Locks interface {
	// Ask returns the lock arguments of the next call. Call it before the call is sent, because the validity of the leases
	// counts from it.
	Ask() Ask
	// Refusal turns the reply of a script that has found one of the keys held into a *locking.HeldError.
	Refusal(keys []string, reply any) error
	// Release returns the release of keys that a script has taken and nobody has adopted.
	Release(t *Taken) *Release
}

// Ask has the lock arguments of one call. The value of a lock is ID, three digits that
// number the task in the call, Tail, and the type and ID of the task.
type Ask struct {
	ID, Tail string
	Floor    int64 // the proposal of acquire (locks.lua): tokens are above its absolute value
	FenceTTL time.Duration
	Block    int               // tokens of a lease
	Began    leasing.Stopwatch // runs since the leases began
	Lapses   int64             // how often a worker had been silent for too long until then
	Worker   string            // whose name the owner value tells; "" for none
}

// Taken are the locks of one task that a script has taken.
type Taken struct {
	Ask   Ask
	Owner string   // the value of the locks
	Keys  []string // business keys, sorted
	Tops  []int64  // the last token of each
	TTL   time.Duration
	Order string // that the tasks of its type keep: see [Wait]
	Locks Locks
}

// Held is a lease that a task has before its handler runs.
type Held interface {
	// Release ends the lease, and returns its release, nil if that is done. freed is called with the keys once they are
	// released, if another caller waits for one of them.
	Release(freed func(keys []string)) *Release
}

// Refused says that a script has found a lock of a task held.
type Refused struct {
	Keys []string // business keys, as they were recorded
	Held error    // a *locking.HeldError
}

// Release returns the release of locks that nobody has adopted. freed, when not nil, is called with the keys once they
// are released, if another caller waits for one of them.
func (t *Taken) Release(freed func(keys []string)) *Release {
	r := t.Locks.Release(t)
	r.Then(func(o Outcome, _ error) {
		if o.Notify && freed != nil {
			freed(t.Keys)
		}
	})
	return r
}
