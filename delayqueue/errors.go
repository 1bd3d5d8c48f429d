package delayqueue

import (
	"errors"
	"fmt"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/line"
)

var (
	// ErrNotOurs reports that a task cannot be parked, because the asynq server that runs it does not use this Queue.
	// [Queue.Park] returns it, and so do handlers with package middleware when their server was made without
	// attach.Attached.Client or package worker.
	ErrNotOurs = line.ErrNotOurs
	// ErrLimit reports that a task has reached one of its [Limits], and was not parked. [Queue.Park] returns it.
	ErrLimit = errors.New("delayqueue: the task has reached a limit on waiting")
	// ErrNotInSequence reports that a task was enqueued, but joins the sequence of its key only when it runs, because
	// Redis no longer answered: tasks that are enqueued after it may run first. Do not enqueue it again. EnqueueInOrder
	// of attach.Producer and of worker.Client returns it.
	ErrNotInSequence = line.ErrNotInSequence
	// ErrNotNow reports that a task with attach.WhenHeld was to run later or in a group. It was not enqueued.
	// EnqueueContext of attach.Producer and Enqueue of worker.Client return it.
	ErrNotNow = line.ErrNotNow
	// ErrUnknownAsynq reports that the asynq of this program is neither of the versions whose scripts railtoken knows, which
	// the error names. attach.New and worker.New return it. EnqueueInOrder of attach.Producer and of worker.Client returns
	// it and enqueues nothing, because the task would join no sequence: use one of these versions, or enqueue the task
	// without an order.
	ErrUnknownAsynq = broker.ErrAsynq
	// ErrNotWaiting reports that a task does not wait for the key. Nothing has changed. [Inspector.Find],
	// [Inspector.PutFirst], [Inspector.PutLast] and [Inspector.Drop] return it, as a [NotWaitingError].
	ErrNotWaiting = errors.New("delayqueue: the task does not wait")
	// ErrNotArchived reports that a task is not in asynq's archive. Nothing has changed. [Inspector.Replay]
	// and items.Replay return it, as a [NotArchivedError].
	ErrNotArchived = errors.New("delayqueue: the task is not archived")
	// ErrGone reports that asynq knows no such task. [Inspector.Replay], items.Of and items.Replay return it.
	ErrGone = line.ErrGone
)

// NotWaitingError reports that a task does not wait, and says where it is. It matches [ErrNotWaiting].
type NotWaitingError struct {
	Task Task
	// Key is the key that it was expected to wait for; empty for any.
	Key string
	// State is where it is: StatePending when it was woken, StateActive when it runs, StateGone when it does not exist.
	State State
	// Other is the key that it waits for instead, if any.
	Other string
}

// Error names the task, the keys and the state.
func (e *NotWaitingError) Error() string {
	text := fmt.Sprintf("delayqueue: task %s does not wait", e.Task)
	if e.Key != "" {
		text += fmt.Sprintf(" for key %q", e.Key)
	}
	text += ": it is " + e.State.inWords()
	if e.Other != "" {
		text += fmt.Sprintf(" and waits for key %q", e.Other)
	}
	return text
}

// Is reports whether target is [ErrNotWaiting].
func (e *NotWaitingError) Is(target error) bool { return target == ErrNotWaiting }

// NotArchivedError reports that a task is not archived, and says where it is. It matches [ErrNotArchived].
type NotArchivedError struct {
	Task  Task
	State State
}

// Error names the task and its state.
func (e *NotArchivedError) Error() string {
	return fmt.Sprintf("delayqueue: task %s is not archived: it is %s", e.Task, e.State.inWords())
}

// Is reports whether target is [ErrNotArchived].
func (e *NotArchivedError) Is(target error) bool { return target == ErrNotArchived }
