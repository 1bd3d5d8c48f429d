package line

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// errNotFound is what asynq's own scripts answer when the task has begun another run.
var errNotFound = errors.New("NOT FOUND")

// succeeds reports whether asynq takes the run for a success.
func succeeds(a broker.Acknowledgement) bool {
	return strings.HasPrefix(a.Script, "done") || strings.HasPrefix(a.Script, "mark")
}

// ending returns the run that an acknowledgement ends, nil if it is not known: the task may be in its next run on this process, too.
func (e *tasks) ending(a broker.Acknowledgement) *Run {
	r := e.runs.of(Task{Queue: a.Queue, ID: a.ID})
	if r != nil && a.Run != "" && r.nonce != a.Run {
		return nil
	}
	return r
}

// Acknowledge parks a task for which [Run.Park] was called. If Redis cannot be reached, it continues in the background,
// because asynq gives up when its lease ends. If Redis refuses to park the task, asynq's own script is sent. A task that
// asynq ends without its handler, because its deadline has passed, leaves its sequence.
func (e *tasks) Acknowledge(ctx context.Context, a broker.Acknowledgement) (answered bool, ended func(), err error) {
	r := e.ending(a)
	if r == nil {
		return false, nil, nil
	}
	r.mu.Lock()
	p, judged, claimed, cancelled := r.parking, r.judged, r.claimed, r.cancelled != nil
	r.putBack = a.Requeues()
	if a.Repeated { // it belongs to an earlier run, or asynq's lease has just ended
		if p != nil && !r.ended.IsZero() {
			r.parkInBackground(p, time.Time{})
		}
		r.mu.Unlock()
		return true, nil, errNotFound
	}
	if !a.Requeues() && (p == nil || p.key == "") { // a park passes it on by itself
		r.passWake()
	}
	r.mu.Unlock()
	if p == nil || a.Requeues() {
		e.runs.drop(r)
		if !claimed && !succeeds(a) && !a.Requeues() && r.Overdue() { // otherwise its handler gives up its position
			ended = r.passOn
		}
		if cancelled && !a.Requeues() {
			ended = r.afterCancel(ended)
		}
		return false, ended, nil
	}
	if succeeds(a) {
		e.log.ErrorContext(ctx,
			"a waiting task was reported as done: a middleware around the lock has swallowed its error; it still waits",
			"task", r.task.String())
	}
	if a.Counted && judged { // otherwise it was cancelled, or its time was over
		e.runs.counted.Do(func() {
			e.log.ErrorContext(ctx,
				"a waiting task would have counted as failed: start the server with the Config of attach.Attached, and leave its "+
					"IsFailure and RetryDelayFunc as they are")
		})
	}
	if err = r.carryOut(ctx, p, false); err == nil || errors.Is(err, ErrGone) {
		e.runs.drop(r)
		return true, nil, nil
	}
	if rediswire.IsFinal(err) && (a.Script == "retry" || a.Script == "archive") {
		e.runs.drop(r)
		return false, nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	lease, _ := ctx.Deadline() // asynq's lease ends
	if r.parkInBackground(p, lease) {
		err = nil
	}
	return true, nil, err
}
