package middleware

import "fmt"

// Outcome is what becomes of a task in conflict: what a [Strategy] decides, and what a [ConflictError] reports.
type Outcome int

// The outcomes.
const (
	// Archive puts the task in asynq's archive, with the error, from where it can be run again by hand. asynq keeps the
	// newest 10 000 tasks of a queue there, for 90 days.
	Archive Outcome = iota
	// Retry counts a failure: asynq retries the task by its own rules, and archives it after the last attempt.
	Retry
	// Discard deletes the task. Only an event and a line in asynq's log tell of it.
	Discard
	// Park frees the slot: the task waits for its key in the retry set of its queue, or of the queue that the strategy
	// names. It uses up no retry, even on the last attempt.
	Park
	// WaitInSlot keeps the task in its slot: it tries again after a delay, or as soon as the key is released.
	WaitInSlot
	// NotEnqueued reports that a producer has not enqueued the task. A strategy cannot choose it.
	NotEnqueued
)

// String returns the outcome in words.
func (o Outcome) String() string {
	if o < Archive || o > NotEnqueued {
		return fmt.Sprintf("Outcome(%d)", int(o))
	}
	return [...]string{"archived", "failed", "discarded", "parked", "waiting in its slot", "not enqueued"}[o]
}
