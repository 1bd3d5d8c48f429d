package broker

import (
	"sync"
	"time"
)

const (
	// outageFrom is how long Redis must not have answered for an outage. asynq extends its leases of 30 s each 5 s, so
	// that no lease of a living worker ends before.
	outageFrom = 20 * time.Second
	// recoverAfter is the time after an outage in which the first look of asynq's recoverer finds nothing. A
	// worker that is alive puts back the tasks that have only waited in its slots. asynq would count their runs as
	// failures, and archive those on their last attempt.
	recoverAfter = 30 * time.Second
)

// recovery decides whether asynq's recoverer sees the tasks of workers that it takes for dead. asynq looks once a minute,
// and once it has been shown nothing, its next look is answered as Redis answers it: the tasks of dead workers wait for
// one more minute at most. The zero value has seen no outage. It is safe for concurrent use.
type recovery struct {
	mu       sync.Mutex
	outage   time.Time       // when Redis was last found not to answer
	withheld map[string]bool // the sets of leases whose last look was answered with nothing
}

// failed notes that a call has failed, and when Redis last carried one out.
func (r *recovery) failed(now, answered time.Time) {
	if now.Sub(answered) < outageFrom {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outage = now
}

// withholds reports whether what a look at a set of leases has found is to be kept from asynq.
func (r *recovery) withholds(leases string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	lately := now.Sub(r.outage) < recoverAfter && !r.withheld[leases]
	if lately && r.withheld == nil {
		r.withheld = map[string]bool{}
	}
	if lately || r.withheld[leases] {
		r.withheld[leases] = lately
	}
	return lately
}
