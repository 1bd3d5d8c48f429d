package delayqueue

import (
	"errors"
	"fmt"

	"github.com/railtoken/railtoken/internal/parking"
)

var (
	// ErrGone reports that asynq knows no such task, or none that is active: it was deleted, or asynq has given up its
	// run.
	ErrGone = parking.ErrGone
	// ErrNotOurs reports that a task cannot be parked, because its asynq server does not use the client that package
	// attach or worker gave it.
	ErrNotOurs = parking.ErrNotOurs
	// ErrNotInSequence reports that a task was enqueued, but has no place in the sequence of its key, because Redis did
	// not answer any more. It joins when it runs; tasks that are enqueued after it may run first until then. Do not
	// enqueue it again.
	ErrNotInSequence = parking.ErrNotInSequence
	// ErrNotNow reports that a task with a strategy for a held key was to run later or in a group. It was not enqueued.
	ErrNotNow = parking.ErrNotNow
	// ErrNotWaiting reports that a task does not wait for the key. Nothing has changed. The error that matches it is a
	// [NotWaitingError].
	ErrNotWaiting = errors.New("delayqueue: the task does not wait")
	// ErrNotArchived reports that a task is not in asynq's archive. Nothing has changed. The error that matches it is a
	// [NotArchivedError].
	ErrNotArchived = errors.New("delayqueue: the task is not archived")
)

// NotWaitingError says where a task is that does not wait. It matches [ErrNotWaiting].
type NotWaitingError struct {
	Task Task
	// Key is the key that it was expected to wait for; empty for any.
	Key string
	// State is where it is: StatePending when it was woken, StateActive when it runs, StateGone when it does not exist.
	State State
}

// Error names the task, the key and the state.
func (e *NotWaitingError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("delayqueue: task %s does not wait: it is %s", e.Task, e.State)
	}
	return fmt.Sprintf("delayqueue: task %s does not wait for key %q: it is %s", e.Task, e.Key, e.State)
}

// Is reports whether target is [ErrNotWaiting].
func (e *NotWaitingError) Is(target error) bool { return target == ErrNotWaiting }

// NotArchivedError says where a task is instead of in the archive. It matches [ErrNotArchived].
type NotArchivedError struct {
	Task  Task
	State State
}

// Error names the task and its state.
func (e *NotArchivedError) Error() string {
	return fmt.Sprintf("delayqueue: task %s is not archived: it is %s", e.Task, e.State)
}

// Is reports whether target is [ErrNotArchived].
func (e *NotArchivedError) Is(target error) bool { return target == ErrNotArchived }
