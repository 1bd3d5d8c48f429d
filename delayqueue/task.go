package delayqueue

// Task identifies a task as asynq does: an ID is unique within a queue.
type Task struct {
	Queue string
	ID    string
}

// String returns "queue/id".
func (t Task) String() string { return t.Queue + "/" + t.ID }

// State is where a task is, in asynq's words: "retry" for a parked task, "pending" for one that was woken or whose
// timer has ended, "active" for one that runs, "scheduled", "archived", "completed"; or [StateGone].
type State string

// The states that this package distinguishes.
const (
	StateActive   State = "active"
	StatePending  State = "pending"
	StateRetry    State = "retry"
	StateArchived State = "archived"
	StateGone     State = "gone" // asynq knows no such task
)

// inWords returns the state for an error text.
func (s State) inWords() string {
	if s == StateRetry {
		return "in state retry"
	}
	return string(s)
}

// over reports whether a task in this state will not run by itself.
func (s State) over() bool { return s == StateGone || s == StateArchived || s == "completed" }
