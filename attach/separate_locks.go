package attach

import (
	"fmt"

	"github.com/railtoken/railtoken/internal/holdings"
)

// SeparateLocksError reports that another worker serves the same queue and has its locks in another place, so that two
// tasks could hold one key at the same time. [Attached.Check] returns it. A server fetches no task until that worker is
// gone; the report of one that was killed stays for 15 s.
type SeparateLocksError struct {
	Queue        string // that both serve
	Host         string // of the other worker
	PID          int
	Store, Other string // where the locks of this server and of the other worker are: see inspect.Worker
}

// Error returns the cause and the remedy.
func (e *SeparateLocksError) Error() string {
	return fmt.Sprintf("attach: worker %s/%d also serves the queue %q, but its locks are elsewhere (%s, here %s), so a key "+
		"could have two holders: give both the same Locker and Namespace (LockRedis of package worker), stop that worker and wait 15 s, or "+
		"set AllowSeparateLocks (RAILTOKEN_ALLOW_SEPARATE_LOCKS=true) if their tasks have no key in common",
		e.Host, e.PID, e.Queue, e.Other, e.Store)
}

func separate(store string, r *holdings.Rival) error {
	return &SeparateLocksError{Queue: r.Queue, Host: r.Host, PID: r.PID, Store: store, Other: r.Store}
}

// beside warns of a worker with which the servers of a would have been refused, but run.
func (a *Attached) beside(store string, r *holdings.Rival) {
	a.opts.Logger.Warn("another worker of a queue has its locks elsewhere; a key can have two holders",
		"queue", r.Queue, "host", r.Host, "pid", r.PID, "store", store, "other", r.Store,
		"remedy", "give both the same lock servers, unless their tasks have no key in common")
}

// moved warns that the lock servers are not those with which the servers of a have started.
func (a *Attached) moved(before, now string) {
	a.opts.Logger.Warn("the locks are on other servers than before",
		"before", before, "store", now, "remedy", "a lock server was replaced or has lost its data: make sure that all workers use the same lock servers")
}
