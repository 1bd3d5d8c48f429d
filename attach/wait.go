package attach

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/line"
)

// Errors of [Producer.Wait]. An [EndedError] matches the first three.
var (
	// ErrArchived reports that the task is in asynq's archive, where it can be run again by hand.
	ErrArchived = errors.New("attach: the task was archived")
	// ErrDiscarded reports that the task was deleted without success: its handler has revoked it, its strategy has discarded it,
	// or a person has deleted it.
	ErrDiscarded = errors.New("attach: the task was discarded or deleted")
	// ErrCancelled reports that the task was cancelled and archived: it matches ErrArchived, too. One that was cancelled and deleted
	// matches ErrDiscarded alone, because nothing is left of it.
	ErrCancelled = errors.New("attach: the task was cancelled")
	// ErrNoRetention reports that the task has no Retention: its result would be gone before anybody could read it.
	ErrNoRetention = errors.New("attach: the task keeps no result: enqueue it with asynq.Retention, for a minute or more")
	// ErrSuperseded reports that the task has completed without its handler, because a task with a later payload has begun: see
	// [Latest].
	ErrSuperseded = errors.New("attach: a later payload runs in place of the task's")
	// ErrNoResult reports that there is no such task: it has ended and left no result, or there has never been one.
	ErrNoResult = errors.New("attach: there is no such task: it has ended without a result that is still kept, or was never enqueued")
)

// EndedError reports that a task for which [Producer.Wait] has waited has ended without success.
type EndedError struct {
	Task delayqueue.Task
	// Info is the task as asynq's Inspector returns it; nil if the task was deleted.
	Info *asynq.TaskInfo
	// Reason is why it has ended, as far as the task tells; its Cause is empty if the task was deleted.
	Reason EndReason
}

// Error names the task, what became of it, and its last error.
func (e *EndedError) Error() string {
	switch {
	case e.Info == nil:
		return fmt.Sprintf("attach: task %s was discarded or deleted", e.Task)
	case e.Reason.Cause == EndCancelled:
		return fmt.Sprintf("attach: task %s was cancelled and archived: %s", e.Task, e.Info.LastErr)
	default:
		return fmt.Sprintf("attach: task %s was archived (%s): %s", e.Task, e.Reason.Cause, e.Info.LastErr)
	}
}

// Is reports whether target is ErrArchived, ErrDiscarded or ErrCancelled, as the task has ended.
func (e *EndedError) Is(target error) bool {
	switch target {
	case ErrArchived:
		return e.Info != nil
	case ErrDiscarded:
		return e.Info == nil
	case ErrCancelled:
		return e.Reason.Cause == EndCancelled
	default:
		return false
	}
}

// Unwrap returns the conflict that has ended the task, or nil.
func (e *EndedError) Unwrap() error {
	if e.Reason.Conflict == nil {
		return nil
	}
	return e.Reason.Conflict
}

// Wait waits until a task has ended, and returns its result: what its handler has written with asynq's ResultWriter, nil if that
// is nothing. The task needs a Retention (asynq.Retention): a minute, say. info is what an enqueue has returned. Another process may
// wait, too: with a TaskInfo that has the Queue and the ID alone.
//
// The error matches
//
//   - [ErrArchived], [ErrDiscarded] or [ErrCancelled] if the task has ended without success: see [EndedError];
//   - [ErrSuperseded] if a task with a later payload has run in its place;
//   - [ErrNoRetention], at once, if the task has no Retention;
//   - [ErrNoResult] if there is no such task;
//   - the cause of ctx once that ends; the task goes on.
//
// Any other error is that of the first look at the task. While Redis cannot be reached later, Wait waits on.
//
// Wait learns of the end by a message of the server that ends the task, if that is attached, and looks at the task every second in any
// case. All calls of a Producer share one connection for the messages.
func (p *Producer) Wait(ctx context.Context, info *asynq.TaskInfo) ([]byte, error) {
	if info == nil || info.ID == "" || info.Queue == "" {
		return nil, errors.New("attach: wait: the TaskInfo names no task: give the one that an enqueue has returned")
	}
	t := line.Task{Queue: info.Queue, ID: info.ID}
	if info.Type != "" && info.Retention < time.Second { // it is what an enqueue has returned
		return nil, fmt.Errorf("%w (task %s)", ErrNoRetention, t)
	}
	outcome, err := p.engine().Await(ctx, t, func(message string) error {
		if asynqwire.ReadMessage(message).Retention < time.Second {
			return ErrNoRetention
		}
		return nil
	})
	switch {
	case errors.Is(err, ErrNoRetention):
		return nil, fmt.Errorf("%w (task %s)", ErrNoRetention, t)
	case errors.Is(err, ends.ErrGone):
		return nil, fmt.Errorf("%w (task %s)", ErrNoResult, t)
	case errors.Is(err, ends.ErrClosed):
		return nil, errors.New("attach: wait: the Producer is closed")
	case err != nil:
		return nil, fmt.Errorf("attach: wait for task %s: %w", t, err)
	case outcome.State == ends.Completed && bytes.HasPrefix(outcome.Result, []byte(line.SupersededResult)):
		return nil, fmt.Errorf("%w (task %s)", ErrSuperseded, t)
	case outcome.State == ends.Completed:
		return outcome.Result, nil
	}
	ended := &EndedError{Task: delayqueue.Task(t)}
	if outcome.State == ends.Archived {
		ended.Info = ends.InfoOf(outcome.Message, asynq.TaskStateArchived, outcome.Result)
		ended.Reason = foundReason(ended.Info, outcome.ByServer)
		if outcome.Cause != "" {
			ended.Reason.Cause = EndCause(outcome.Cause)
		}
	}
	return nil, ended
}
