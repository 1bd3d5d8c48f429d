package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/middleware"
)

// OnArchived is called once a task has ended for good without success: it is in asynq's archive, or was deleted. info is the
// task as asynq's Inspector returns it; its State is archived, or active for a task that was deleted. See [Options].
type OnArchived = func(ctx context.Context, info *asynq.TaskInfo, reason EndReason) error

// OnCompleted is called once a task has completed. info.Result is empty unless the task has a Retention. See [Options].
type OnCompleted = func(ctx context.Context, info *asynq.TaskInfo) error

// EndCause is why a task has ended without success.
type EndCause string

// The causes.
const (
	EndSkipRetry    EndCause = "skip_retry"    // its handler has returned an error that matches asynq.SkipRetry, or it had no usable key
	EndExhausted    EndCause = "exhausted"     // its last attempt has failed
	EndLeaseExpired EndCause = "lease_expired" // its worker has died in its last attempt, or could not reach Redis
	EndDeadline     EndCause = "deadline"      // its deadline had passed before its last attempt could begin
	EndLimit        EndCause = "limit"         // it has waited up to a limit: see Conflict.Limit
	EndCancelled    EndCause = ends.Cancelled  // it was cancelled: see By and Why
	EndRevoked      EndCause = "revoked"       // its handler has returned an error that matches asynq.RevokeTask: it was deleted
	EndFailFast     EndCause = "fail_fast"     // a key was held, and the strategy has ended the task: see Conflict
	EndByHand       EndCause = ends.ByHand     // a person or another program has archived it, or an operator has dropped it
)

// EndReason is why a task has ended without success.
type EndReason struct {
	Cause EndCause
	// Conflict is the last error of the task, if that was a conflict: always with EndFailFast, and with EndLimit unless OnLimit
	// has returned another error.
	Conflict *middleware.ConflictError
	// By and Why say who has cancelled a task, and for what reason.
	By, Why string
}

// reasonOf returns why a task ends, from what asynq has got from its run.
func reasonOf(e line.FinalRun) EndReason {
	conflict, isConflict := errors.AsType[*middleware.ConflictError](e.Err)
	if isConflict && conflict.Outcome == middleware.NotEnqueued { // that of another task
		conflict, isConflict = nil, false
	}
	r := EndReason{Conflict: conflict}
	cancelled, isCancelled := errors.AsType[*middleware.CancelledError](e.Err)
	switch {
	case isCancelled:
		r.Cause, r.By, r.Why = EndCancelled, cancelled.By, cancelled.Why
	case e.AtLimit, isConflict && conflict.Limit != delayqueue.NoLimit:
		r.Cause = EndLimit
	case isConflict && (conflict.Outcome == middleware.Archive || conflict.Outcome == middleware.Discard):
		r.Cause = EndFailFast
	case errors.Is(e.Err, asynq.RevokeTask):
		r.Cause = EndRevoked
	case errors.Is(e.Err, asynq.SkipRetry):
		r.Cause = EndSkipRetry
	case e.Unbegun && errors.Is(e.Err, context.DeadlineExceeded):
		r.Cause = EndDeadline
	default:
		r.Cause = EndExhausted
	}
	return r
}

// foundReason returns why an archived task has ended, from what asynq has stored of it. byServer says that a server of asynq has
// archived it: then it is its last attempt, or the error has matched asynq.SkipRetry.
func foundReason(info *asynq.TaskInfo, byServer bool) EndReason {
	if c, ok := line.CancellationIn(info.LastErr); ok {
		return EndReason{Cause: EndCancelled, By: c.By, Why: c.Why}
	}
	if !byServer {
		return EndReason{Cause: EndByHand}
	}
	if info.LastErr == asynq.ErrLeaseExpired.Error() {
		return EndReason{Cause: EndLeaseExpired}
	}
	conflict, err := middleware.ParseConflict(info.Result)
	inConflict := err == nil && strings.Contains(info.LastErr, fmt.Sprintf("%q is held", conflict.Key)) // the result may be left from an earlier end
	switch {
	case inConflict && conflict.Limit != delayqueue.NoLimit:
		return EndReason{Cause: EndLimit, Conflict: conflict}
	case inConflict:
		return EndReason{Cause: EndFailFast, Conflict: conflict}
	case info.Retried >= info.MaxRetry:
		return EndReason{Cause: EndExhausted}
	default:
		return EndReason{Cause: EndSkipRetry}
	}
}

// detail is a conflict as a mark has it. The key may be of any bytes.
type detail struct {
	*middleware.ConflictError
	Key []byte
}

// end returns a reason as a mark has it.
func (r EndReason) end(s ends.State) ends.End {
	e := ends.End{State: s, Cause: string(r.Cause), By: r.By, Why: r.Why}
	if r.Conflict != nil {
		e.Detail, _ = json.Marshal(detail{r.Conflict, []byte(r.Conflict.Key)}) // plain data
	}
	return e
}

// reasonIn returns the reason that a mark has.
func reasonIn(e ends.End) EndReason {
	r := EndReason{Cause: EndCause(e.Cause), By: e.By, Why: e.Why}
	d := detail{ConflictError: &middleware.ConflictError{}}
	if len(e.Detail) > 0 && json.Unmarshal(e.Detail, &d) == nil {
		r.Conflict = d.ConflictError
		r.Conflict.Key = string(d.Key)
	}
	return r
}

// hearing has callbacks hear of the ends of tasks.
type hearing struct {
	*ends.Teller
}

// Ending returns the mark of an end: see [line.Ends].
func (h hearing) Ending(e line.FinalRun) *ends.Ending {
	m := ends.Mark{Queue: e.Queue, ID: e.ID, Run: e.Run, At: time.Now(), Message: e.Message}
	switch {
	case e.Archived:
		m.State = ends.Archived
	case errors.Is(e.Err, asynq.RevokeTask):
		m.State = ends.Deleted
	default:
		m.State = ends.Completed
	}
	switch {
	case !h.Hears(m.State):
		return nil
	case m.State == ends.Archived && !e.Known:
		m.End = foundReason(ends.InfoOf(e.Message, asynq.TaskStateArchived, nil), true).end(m.State)
	case m.State != ends.Completed:
		m.End = reasonOf(e).end(m.State)
	}
	return h.Teller.Ending(m, e.ArchivedAt)
}

// hear has the callbacks of the options hear of the ends of tasks, if there are any.
func (a *Attached) hear() {
	o := a.opts
	if o.OnArchived == nil && o.OnCompleted == nil {
		return
	}
	opts := ends.Options{
		Client: a.client, Logger: o.Logger, GaveUp: a.untold,
		Found: func(message string, result []byte, byServer bool) ends.End {
			return foundReason(ends.InfoOf(message, asynq.TaskStateArchived, result), byServer).end(ends.Archived)
		},
	}
	if o.OnArchived != nil {
		opts.Archived = func(ctx context.Context, m ends.Mark, result []byte) error {
			return o.OnArchived(ctx, m.Info(result), reasonIn(m.End))
		}
	}
	if o.OnCompleted != nil {
		opts.Completed = func(ctx context.Context, m ends.Mark, result []byte) error {
			return o.OnCompleted(ctx, m.Info(result))
		}
	}
	a.teller = ends.NewTeller(opts)
	(*line.Engine)(a.queue).Hear(hearing{a.teller})
}

// untold reports an end that is told no more, because its callback has failed too often.
func (a *Attached) untold(m ends.Mark, err error) {
	task := delayqueue.Task{Queue: m.Queue, ID: m.ID}
	a.opts.Logger.Error("the callback for the end of a task has failed for the last time; the end is not told", "task", task.String(),
		"error", err)
	tell(context.Background(), a.opts.Observer, a.opts.Logger, &middleware.Event{
		Kind: middleware.Untold, Task: task, Type: m.Info(nil).Type, Err: err,
	})
}

// noting returns an error handler that notes the errors of tasks, from which the reasons of their ends follow.
func (a *Attached) noting(next asynq.ErrorHandler) asynq.ErrorHandler {
	return asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
		if next != nil {
			next.HandleError(ctx, task, err)
		}
		if Waits(err) {
			return
		}
		if t, unknown := line.TaskOf(ctx); unknown == nil {
			(*line.Engine)(a.queue).Failed(t, err)
		}
	})
}
