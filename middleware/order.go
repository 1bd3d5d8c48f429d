package middleware

import "fmt"

// Order is the order in which the tasks of a key run. All handlers that work on a key must use the same one, and with
// any order but [BestEffort] each task must have exactly one key: see the package comment.
type Order int

// The orders of the tasks of a key.
const (
	// BestEffort wakes the task that was parked first. A task that arrives while the key is free takes it at once.
	BestEffort Order = iota
	// FIFO runs tasks in the order in which they arrived. A task arrives when attach.Producer.EnqueueInOrder enqueues
	// it, or else when a server first takes it. No task overtakes a waiting one. A task whose handler fails leaves the sequence,
	// and joins it again when asynq retries the task.
	FIFO
	// StrictFIFO is FIFO, except that a task whose handler fails keeps its position: the tasks behind it wait until it
	// has succeeded or is archived. If the strategy limits the age, a failed task is overtaken once it has been in the
	// sequence for half of that limit. So the tasks behind it do not reach the limit because of it.
	StrictFIFO
)

// String returns the order in words.
func (o Order) String() string {
	if o < BestEffort || o > StrictFIFO {
		return fmt.Sprintf("Order(%d)", int(o))
	}
	return [...]string{"best effort", "FIFO", "strict FIFO"}[o]
}

// recorded returns the order in the words of the scripts that fetch tasks: see colocated.Wait.
func (o Order) recorded() string { return [...]string{"", "fifo", "strict"}[o] }
