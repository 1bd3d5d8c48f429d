package middleware

import "fmt"

// FailFast ends a task in conflict at once, with a [ConflictError] that names the key, its holder and when to try
// again. For work that a person or a caller waits for. The zero value archives the task.
type FailFast struct {
	// Outcome is what asynq does with the task: [Archive] it, count it as a failure and [Retry] it, or [Discard] it.
	Outcome Outcome
}

// Decide returns the Outcome.
func (f FailFast) Decide(Conflict) Decision { return Decision{Outcome: f.Outcome} }

// Validate returns the fault of the strategy, or nil.
func (f FailFast) Validate() error {
	if f.Outcome < Archive || f.Outcome > Discard {
		return fmt.Errorf("middleware: FailFast.Outcome is %d: use Archive, Retry or Discard", f.Outcome)
	}
	return nil
}

func (FailFast) parks() bool { return false }
