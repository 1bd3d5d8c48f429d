package middleware

import "fmt"

// Outcome is what happens to a task in conflict. A [Strategy] decides on it, and a [ConflictError] reports it.
type Outcome int

// The outcomes of a conflict.
const (
	// Archive moves the task to asynq's archive, together with the error. It can be run again by hand from there. asynq
	// keeps the newest 9 999 archived tasks of a queue, for 90 days.
	Archive Outcome = iota
	// Retry counts a failure: asynq retries the task by its own rules, and archives it after the last attempt.
	Retry
	// Discard deletes the task. Only an event and asynq's log mention it.
	Discard
	// Complete has asynq complete the task without running it: another run does what the task asks for. If the task has a
	// Retention, the conflict is its result, also for who waits for that: see [ParseConflict].
	Complete
	// Park frees the slot: the task waits for its key in the retry set of its queue, or of the queue that the strategy
	// names. It uses up no retry, even on the last attempt.
	Park
	// WaitInSlot keeps the task in its slot: it tries again after a delay, or as soon as the key is released.
	WaitInSlot
	// NotEnqueued means that a producer did not enqueue the task. A strategy cannot choose it.
	NotEnqueued
)

// String returns the outcome in words.
func (o Outcome) String() string {
	if o < Archive || o > NotEnqueued {
		return fmt.Sprintf("Outcome(%d)", int(o))
	}
	return [...]string{"archived", "failed", "discarded", "completed", "parked", "waiting in its slot", "not enqueued"}[o]
}
