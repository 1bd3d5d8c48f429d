package attach

import (
	"errors"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/middleware"
)

// Defaults of [Recovery], and its bounds.
const (
	DefaultRecoveryAfter  = 20 * time.Second
	DefaultRecoveryDeaths = 3

	// apartRecoveryAfter is the default where the locks of dead workers end with their TTL, which is 30 s by default.
	apartRecoveryAfter = 40 * time.Second

	// leastRecoveryAfter is two intervals of reports: a worker that has missed one still lives.
	leastRecoveryAfter = 2 * holdings.Interval
	// mostRecoveryAfter leaves time before asynq's own recoverer, which takes a task from 55 s after its worker's last
	// heartbeat on.
	mostRecoveryAfter = 45 * time.Second
)

// ErrSilent is in the cause of a lease's context whose worker could not report in time: another worker may have taken back its
// task and its keys. See [Recovery].
var ErrSilent = errors.New("attach: this worker could not report in time, so another one may have taken back its tasks")

// Recovered is the kind of the event of a task that runs again because its worker has died: see [Recovery]. Only Task and At of
// the event are set.
const Recovered middleware.EventKind = taskrun.Recovered

// Recovery says how soon the tasks of a worker that has died run again. With the zero value that is 20 s after the last
// report of the worker. No retry is used up, so that also a task on its last attempt runs again. asynq itself needs 55 to
// 120 s, counts the run as a failure, and archives the task if it was its last attempt; its recoverer keeps working beside
// this one.
//
// A worker reports every 5 s, and its reports say its After. Any other worker that serves the queue takes back the tasks of one that has
// not reported for so long, if it has itself reported to Redis for all of this time: so after an outage of Redis everybody has that
// time to report.
//
// A task goes to the head of its queue, and keeps its position in a sequence. Its locks are released, and their fences
// raised, if they are on the tasks' Redis and its keys are recorded with it or found by its handler's key function without a
// run. Other locks end with their TTL: until then a task that is taken back meets its own lock, so choose After longer than the TTL.
//
// A worker that was only paused, or cut off from Redis, learns of it: shortly before After its leases on the tasks' Redis
// end, with [ErrSilent] in the cause, so that no two handlers run for a key. Its acknowledgements of tasks that were taken back
// change nothing.
//
// With DisableReports, with more than 1 000 workers on one Redis, and for the tasks of asynq servers without railtoken, asynq's
// recoverer is alone, as it is with a negative After.
type Recovery struct {
	// After is how long this worker must have been silent, in whole seconds; 20 s when zero, and 40 s if the locks are not on the
	// tasks' Redis, or that is a Redis Cluster. Negative turns the recovery off, for the tasks of this server and by this server. It
	// must be from 10 to 45 s.
	After time.Duration
	// Deaths is how many runs of a task in a row may end with the death of their worker; 3 when zero. The last of them is left
	// to asynq's recoverer, which counts a failure, so that a task that kills its worker ends. A run that ends by itself begins
	// the count anew.
	Deaths int
}

// Validate returns an error that lists all problems, or nil.
func (r Recovery) Validate() error {
	var errs []error
	if r.After > 0 && (r.After < leastRecoveryAfter || r.After > mostRecoveryAfter || r.After%time.Second != 0) {
		errs = append(errs, fmt.Errorf("attach: Recovery.After is %v: give whole seconds from %v, two reports of a worker, to %v, before "+
			"asynq's own recoverer comes; negative turns the recovery off", r.After, leastRecoveryAfter, mostRecoveryAfter))
	}
	switch {
	case r.Deaths < 0:
		errs = append(errs, fmt.Errorf("attach: Recovery.Deaths is %d: give at least 1, or 0 for %d; a negative After turns the "+
			"recovery off", r.Deaths, DefaultRecoveryDeaths))
	case r.Deaths > 0 && r.After < 0:
		errs = append(errs, fmt.Errorf("attach: Recovery.Deaths is %d, but a negative After turns the recovery off: remove one of them",
			r.Deaths))
	}
	return errors.Join(errs...)
}

// fits returns why the recovery that is asked for cannot be had, or nil.
func (r Recovery) fits(opts Options) error {
	err := r.Validate()
	if (r.After > 0 || r.Deaths > 0) && opts.DisableReports {
		err = errors.Join(err, errors.New("attach: Recovery is set, but with DisableReports nobody knows whether a worker lives: "+
			"remove one of them"))
	}
	return err
}

// withDefaults returns what holds. frees says that the locks of dead workers are released.
func (r Recovery) withDefaults(frees bool) Recovery {
	switch {
	case r.After != 0:
	case frees:
		r.After = DefaultRecoveryAfter
	default:
		r.After = apartRecoveryAfter
	}
	if r.Deaths == 0 {
		r.Deaths = DefaultRecoveryDeaths
	}
	return r
}
