package delayqueue

import (
	"errors"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
)

// Limits bounds how long and how often a task waits, and how many others may wait with it. The zero value sets no
// limit: a task waits until it gets its key.
type Limits struct {
	// Conflicts is how many runs of a task may end because its key was refused; no limit when zero. The next such run
	// reaches the limit.
	Conflicts int
	// Age is how long a task may wait after its first conflict; no limit when zero. The first conflict after that time
	// reaches the limit.
	Age time.Duration
	// Waiters is how many tasks may wait for one key; no limit when zero. Tasks that were deleted or archived by hand
	// may count for a while: each task that finds no room checks a few of them.
	Waiters int
	// Total is how many tasks may wait for all keys together, across all workers on this Redis; no limit when zero.
	// Tasks that were deleted or archived by hand count as they do for Waiters.
	Total int
}

// Validate returns an error that lists all problems with the limits, or nil.
func (l Limits) Validate() error {
	var errs []error
	for _, limit := range []struct {
		name  string
		value int
	}{{"Conflicts", l.Conflicts}, {"Waiters", l.Waiters}, {"Total", l.Total}} {
		if limit.value < 0 {
			errs = append(errs, fmt.Errorf("delayqueue: %s is %d: it cannot be negative", limit.name, limit.value))
		}
	}
	return errors.Join(append(errs, leasing.CheckDuration("delayqueue: Age", l.Age, leasing.LeastDuration))...)
}

// Limit names one of the [Limits].
type Limit string

// The limits that a task can reach.
const (
	NoLimit        Limit = ""
	ConflictsLimit Limit = "conflicts"
	AgeLimit       Limit = "age"
	WaitersLimit   Limit = "waiters"
	TotalLimit     Limit = "total"
)

// Conflict describes the refusals of a task since its handler last ran.
type Conflict struct {
	// Count is how many runs ended because it was refused.
	Count int
	// First is when it was first refused, by the clock of Redis; zero when it never was.
	First time.Time
}

// Reached returns the limit on conflicts or age that a task has reached, or [NoLimit]. c includes the present
// conflict.
func (l Limits) Reached(c Conflict) Limit {
	switch {
	case l.Conflicts > 0 && c.Count > l.Conflicts:
		return ConflictsLimit
	case l.Age > 0 && !c.First.IsZero() && time.Since(c.First) > l.Age:
		return AgeLimit
	}
	return NoLimit
}
