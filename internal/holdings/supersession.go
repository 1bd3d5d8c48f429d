package holdings

import "time"

// Supersession asks the runs that hold a key to stop, because a task is to take their place.
type Supersession struct {
	Keys      []string // which the task needs
	Group     string   // of the runs; others go on
	Queue, ID string   // of the task
	Grace     time.Duration

	// Of the task, as far as Redis tells: when it was first refused in this attempt, and its headers. Again says that it has run before: it
	// was retried, or its worker has died. So it may be older than tasks that were refused before.
	First   time.Time
	Again   bool
	Headers map[string]string
}

// Holder is the run that has a [Holding].
type Holder interface {
	// Supersede tells it that another task is to take its place. It may be called repeatedly, and after the lease has ended.
	Supersede(s Supersession, lease Lease)
}
