package line

import (
	"context"
	"time"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/ends"
)

// FinalRun is what is known of the end of a task when asynq acknowledges its last run.
type FinalRun struct {
	Task
	Run      string // its name; the time if it is not known
	Message  string // asynq's; "" if it is not known
	Archived bool   // else asynq deletes or completes the task
	// ArchivedAt is when asynq archives the task (s), in its words.
	ArchivedAt string
	// Err is what asynq has got from the run; nil for a success, and if that is not known: see Known.
	Err error
	// Known says that the run was one of this process.
	Known bool
	// Unbegun says that the deadline of the task had passed before its handler was called. AtLimit says that the task has waited up
	// to a limit.
	Unbegun, AtLimit bool
}

// Ends learns of the ends of tasks.
type Ends interface {
	// Ending returns the mark of an end that is about to be written; nil if nobody is to hear of it.
	Ending(r FinalRun) *ends.Ending
}

// Hear has ends learn of the ends of tasks. It must be called before [Engine.Conn].
func (e *Engine) Hear(ends Ends) { e.ends = ends }

// Failed notes what asynq gets from the present run of a task that has failed.
func (e *Engine) Failed(t Task, err error) {
	if r := e.runs.of(t); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.failure = err
	}
}

// Limited notes that the task has waited up to a limit.
func (r *Run) Limited() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.atLimit = true
}

// Ending returns the mark of the end of a task: see [broker.Tasks].
func (e *tasks) Ending(a broker.Acknowledgement) *ends.Ending {
	if e.ends == nil {
		return nil
	}
	end := FinalRun{
		Task: Task{Queue: a.Queue, ID: a.ID}, Message: a.Message, Archived: a.Archives(), ArchivedAt: a.ArchivedAt,
		Run: time.Now().Format(time.RFC3339Nano),
	}
	if r := e.ending(a); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.parking != nil {
			return nil // it waits
		}
		end.Known, end.Run, end.Err, end.AtLimit = true, r.nonce, r.failure, r.atLimit
		if end.Message == "" {
			end.Message = r.message
		}
		if end.Archived && (r.failure == nil || r.failure.Error() != textOf(a.Message, errorField)) {
			end.Known, end.Err = false, nil // asynq's recoverer ends a run that this process has given up
		}
		end.Unbegun = !r.claimed && (e.parkers.of(textOf(r.message, typeField)) != nil || passed(deadlineOf(r.message), r.since))
	}
	return e.ends.Ending(end)
}

// Await waits until a task has ended: see [ends.Waiters.Wait].
func (e *Engine) Await(ctx context.Context, t Task, accept func(message string) error) (ends.Outcome, error) {
	return e.waiters.Wait(ctx, t.Queue, t.ID, accept)
}
