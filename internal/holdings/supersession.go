package holdings

import "time"

// Supersession asks the runs that hold a key to stop, because a task is to take their place.
type Supersession struct {
	Keys      []string // which the task needs
	Group     string   // of the runs; others go on
	Queue, ID string   // of the task
	Grace     time.Duration

	// Since is when the task was first refused or began to run, in all its attempts, by the clock of Redis. It is zero for one that was
	// only enqueued.
	Since   time.Time
	Headers map[string]string
}

// Holder is the run that has a [Holding].
type Holder interface {
	// Supersede tells it that another task is to take its place. It may be called repeatedly, and after the lease has ended.
	Supersede(s Supersession, lease Lease)
}
