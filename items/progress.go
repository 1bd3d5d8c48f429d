package items

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
)

// ErrNothingToReplay reports that every item of a task is done or skipped.
var ErrNothingToReplay = errors.New("items: every item is done or skipped")

// Of returns the state of a task's items so far, while the task waits or runs and as long as asynq keeps it afterwards:
// in the archive, or with asynq.Retention. Results of the last 10 ms may be missing. Total is 0 if the task has not run
// yet. The error matches [delayqueue.ErrGone] when asynq knows no such task.
func Of(ctx context.Context, queue *delayqueue.Queue, t delayqueue.Task) (Report, error) {
	p, _, err := load(ctx, (*line.Engine)(queue).Client(), line.Task(t))
	if errors.Is(err, errNoTask) {
		return Report{}, delayqueue.ErrGone
	}
	return p.report(), err
}

// Replay reruns an archived or completed task for the items that are neither done nor skipped, and their tries are
// counted from zero. The task joins the end of its asynq queue. Replay returns how many items are to run. asynq keeps
// the last error of the earlier run in the task's LastErr even if the task then succeeds; Of returns the state of its
// items.
//
// The error matches [ErrNothingToReplay] when there is no such item, [delayqueue.ErrGone] when asynq knows no such
// task, and [delayqueue.ErrNotArchived] when it is neither archived nor completed.
func Replay(ctx context.Context, queue *delayqueue.Queue, t delayqueue.Task) (int, error) {
	engine, task := (*line.Engine)(queue), line.Task(t)
	p, _, err := load(ctx, engine.Client(), task)
	if errors.Is(err, errNoTask) {
		return 0, delayqueue.ErrGone
	}
	if err != nil {
		return 0, err
	}
	report := p.report()
	left := report.Total - report.Done - report.Skipped
	if left == 0 && report.Total > 0 {
		return 0, fmt.Errorf("%w: task %s", ErrNothingToReplay, t)
	}
	var forget []any
	for _, item := range report.Items {
		if item.State != Skipped {
			forget = append(forget, item.Index)
		}
	}
	state, err := forgetScript.Run(ctx, engine.Client(), []string{task.Hash()}, forget...).Text()
	switch {
	case err != nil:
		return 0, fmt.Errorf("items: replay task %s: %w", t, err)
	case state == "gone":
		return 0, delayqueue.ErrGone
	case state == "archived":
		return left, queue.Inspector().Replay(ctx, t)
	case state != "completed":
		return 0, &delayqueue.NotArchivedError{Task: t, State: delayqueue.State(state)}
	}
	if err := engine.Tasks().RunTask(t.Queue, t.ID); err != nil {
		if errors.Is(err, asynq.ErrTaskNotFound) {
			err = delayqueue.ErrGone
		}
		return 0, fmt.Errorf("items: replay task %s: %w", t, err)
	}
	return left, nil
}
