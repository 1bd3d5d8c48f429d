package middleware

import "fmt"

// FailFast ends a task in conflict at once, with a [ConflictError] that names the key and its holder. Use it when a
// person or a caller waits for the result, or with [Complete] when the task is needless while another one runs. The zero value archives
// the task.
type FailFast struct {
	// Outcome is what happens to the task: [Archive], [Discard], [Complete], or [Retry]. With Retry the conflict is a failure
	// and uses up a retry, so that asynq archives the task after its last attempt; [Requeue] waits without that.
	Outcome Outcome
}

// Decide returns the Outcome.
func (f FailFast) Decide(Conflict) Decision { return Decision{Outcome: f.Outcome} }

// Validate returns what is wrong with the Outcome, or nil.
func (f FailFast) Validate() error {
	if f.Outcome < Archive || f.Outcome > Complete {
		return fmt.Errorf("middleware: FailFast.Outcome is %d: use Archive, Retry, Discard or Complete", f.Outcome)
	}
	return nil
}

func (FailFast) parks() bool { return false }
