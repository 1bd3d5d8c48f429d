package middleware

import (
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/locking"
)

// list has the reports of the server name what the run holds, from the start of its handler.
func (r *run) list(lease *locking.Lease, item bool) {
	r.holding = holdings.Holding{
		Queue: r.id.Queue, ID: r.id.ID, Type: r.task.Type(), Keys: r.keys, Since: r.began, Item: item, Lease: lease,
		Waited: r.refusals > 0 || r.active.Met(r.attempt).Count > 0,
	}
	r.reported().Add(&r.holding)
}

// unlist ends that. Further calls do nothing.
func (r *run) unlist() { r.reported().Remove(&r.holding) }
