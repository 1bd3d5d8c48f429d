package holdings

import "time"

// Supersession asks the runs that hold a key to stop, because a task is to take their place.
type Supersession struct {
	Keys      []string // which the task needs
	Group     string   // of the runs; others go on
	Queue, ID string   // of the task
	Grace     time.Duration

	// Of the task, as far as Redis tells: when it was first refused, its retry count and its headers.
	First   time.Time
	Attempt int
	Headers map[string]string
}

// Holder is the run that has a [Holding].
type Holder interface {
	// Supersede tells it that another task is to take its place. It may be called repeatedly, and after the lease has ended.
	Supersede(s Supersession, lease Lease)
}
