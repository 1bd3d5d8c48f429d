package middleware

import (
	"context"
	"fmt"

	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/locking"
)

// Order is the order in which the tasks of a key run. All handlers that work on a key must use the same one, and tasks
// of orders other than [BestEffort] have one key each: see the package comment.
type Order int

// The orders.
const (
	// BestEffort wakes the task first that was refused first. A task that arrives while the key is free takes it at
	// once.
	BestEffort Order = iota
	// FIFO runs tasks in the order in which they arrived: by attach.Producer.EnqueueInOrder, or when they first ran. No
	// task passes one that waits. A task whose handler fails leaves the sequence and joins it again when asynq retries
	// it.
	FIFO
	// StrictFIFO is FIFO, and a task whose handler fails keeps its position: the tasks behind it wait until it has
	// succeeded or is archived. When the strategy limits the age, a task that has been in the sequence for more than
	// half of that is passed, so that the tasks behind it do not reach the limit because of it.
	StrictFIFO
)

// String returns the order in a word.
func (o Order) String() string {
	if o < BestEffort || o > StrictFIFO {
		return fmt.Sprintf("Order(%d)", int(o))
	}
	return [...]string{"best effort", "FIFO", "strict FIFO"}[o]
}

// ordering is what the order of a key's tasks decides about a run. There is a bestEffort and a sequence.
type ordering interface {
	// accepts returns what is wrong with the number of a task's keys, or nil.
	accepts(keys []string) error
	// admit returns the task that stands before this one, as the holder of its key, or nil when it is this one's turn
	// to try the lock.
	admit(ctx context.Context) (*locking.HeldError, error)
	// confirm looks once more whether it is the task's turn, after it has waited for the lock alone. If not, it gives
	// the lease back.
	confirm(ctx context.Context, lease *locking.Lease) (*locking.Lease, *locking.HeldError, error)
	// ahead returns how many tasks stood before this one when it was last admitted or refused; 0 without a sequence.
	ahead() int
	// stays reports whether a task keeps its position when its handler has returned err: it will run again, and none
	// may pass it.
	stays(ctx context.Context, failed bool, err error) bool
	// returns reports whether a task keeps its position when its run has ended with err before it had its keys.
	returns(err error) bool
	// leave gives up the position of a task that has ended, before its keys are released: the next holder must find
	// that it is its turn.
	leave(ctx context.Context, lost bool) parking.Front
	// wakeNext wakes the tasks that are next after a release. left is what leave has returned; leaving is false for a
	// task that stays.
	wakeNext(ctx context.Context, lease *locking.Lease, left parking.Front, leaving bool)
	// wakeAgain wakes the next task when another one has asked for the key of a task that stays.
	wakeAgain(ctx context.Context)
	// quit gives up the position of a task that ends without its keys, and wakes the next one.
	quit(ctx context.Context)
	// park adds what the order knows to how a task waits; limited says that a limit on waiters ends its wait.
	park(opts *parking.ParkOptions, limited bool)
	// looksAgain reports whether a task that was parked just now may look once more for its key.
	looksAgain(ctx context.Context, key string, t parking.Task) bool
	// giveUp releases a key that was locked only to see that it is free, and wakes the next task.
	giveUp(ctx context.Context, lease *locking.Lease)
}
