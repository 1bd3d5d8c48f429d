package middleware

import (
	"context"
	"fmt"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/locking"
)

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

// recorded returns the order in the words of the scripts that fetch tasks: see [colocated.Wait].
func (o Order) recorded() string { return [...]string{"", "fifo", "strict"}[o] }

// learns reports whether tasks may come with their locks. The limit on age needs the task's position, which only its run
// finds out.
func (l *lock) learns() bool { return l.order != StrictFIFO || l.maxAge == 0 }

// ordering is how the order of its key affects a run. It is implemented by bestEffort and sequence.
type ordering interface {
	// accepts returns what is wrong with the number of keys of a task, or nil.
	accepts(keys []string) error
	// admit returns the first task of the sequence, as the holder of the key, if that is not this task. It returns nil
	// if this task may try to lock its keys.
	admit(ctx context.Context) (*locking.HeldError, error)
	// ahead returns how many tasks were before this one when it was last admitted or refused; 0 without a sequence.
	ahead() int
	// stays reports whether a task keeps its position after its handler has returned err: it will run again, and no
	// other task may overtake it.
	stays(ctx context.Context, failed bool, err error) bool
	// returns reports whether a task keeps its position after its run has ended with err before it had its keys.
	returns(err error) bool
	// place returns what an acknowledgement that releases the keys makes of the position of a task that stays or leaves.
	place(stays bool) colocated.Place
	// wakes returns the Plan of [line.ReleaseOptions].
	wakes(stays bool) func(key string) int
	// leave gives up the position of a task that has ended. It is called before the keys are released, so that the next
	// holder finds that it is the first.
	leave(ctx context.Context, lost bool) line.Front
	// wakeNext wakes the next tasks after a release. left is what leave has returned; leaving is false for a task that
	// stays.
	wakeNext(ctx context.Context, lease *locking.Lease, left line.Front, leaving bool)
	// wakeAgain wakes the next task if another one has subscribed to the key of a task that stays.
	wakeAgain(ctx context.Context)
	// quit gives up the position of a task that ends without its keys, and wakes the next task.
	quit(ctx context.Context)
	// park adds what the order requires to the options of parking; limited says that a limit on waiters ends the wait.
	park(opts *line.ParkOptions, limited bool)
	// looksAgain reports whether a task that has just been parked may check again whether its key is free.
	looksAgain(ctx context.Context, key string, t line.Task) bool
	// giveUp releases a key that was locked only to check that it is free, and wakes the next task.
	giveUp(ctx context.Context, lease *locking.Lease)
}
