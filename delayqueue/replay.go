package delayqueue

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
)

const (
	// mostArchived is how many tasks asynq keeps in the archive of a queue.
	mostArchived = 10_000
	archivePage  = 100
)

// Replay runs an archived task again, whatever the reason for which it was archived. The task joins the end of its
// asynq queue. Its conflicts and its age are counted from zero, and its old result is cleared. Its retry count, its
// deadline and everything else stay the same.
//
// The error matches [ErrGone] when asynq knows no such task, and [ErrNotArchived] when it is elsewhere, for example
// after another Replay.
func (i *Inspector) Replay(ctx context.Context, t Task) error {
	state, err := i.engine.Replay(ctx, line.Task(t))
	switch {
	case err != nil:
		return fmt.Errorf("delayqueue: replay task %s: %w", t, err)
	case State(state) == StateGone:
		return fmt.Errorf("delayqueue: replay task %s: %w", t, ErrGone)
	case State(state) != StateArchived:
		return &NotArchivedError{Task: t, State: State(state)}
	}
	return nil
}

// ReplayAll replays archived tasks of an asynq queue, and those of its lanes, as [Inspector.Replay] does: those for which choose
// returns true, the oldest of each lane first. most is the maximum number of tasks to replay; if it is 0 or less, no task is replayed. ReplayAll
// returns how many it has replayed, even if it also returns an error. A task that is archived meanwhile may be left for
// the next call. The error matches asynq.ErrQueueNotFound when asynq knows no such queue. To replay the tasks that were
// archived because of a conflict, use middleware.ReplayConflicts.
//
// It reads the archive, of at most 10 000 tasks, in pages of 100 that take two calls to Redis each, and makes one call
// for each task that it replays.
func (i *Inspector) ReplayAll(
	ctx context.Context, queue string, most int, choose func(*asynq.TaskInfo) bool,
) (int, error) {
	queues, err := i.engine.InUse(ctx, queue)
	if err != nil {
		return 0, fmt.Errorf("delayqueue: %w", err)
	}
	var chosen []Task
	for _, one := range queues {
		ids, err := i.archived(ctx, one, most-len(chosen), choose)
		if err != nil {
			return 0, err
		}
		for _, id := range ids {
			chosen = append(chosen, Task{Queue: one, ID: id})
		}
	}
	replayed := 0
	for _, t := range chosen {
		err := i.Replay(ctx, t)
		switch {
		case err == nil:
			replayed++
		case !errors.Is(err, ErrGone) && !errors.Is(err, ErrNotArchived): // these have left since
			return replayed, err
		}
	}
	return replayed, nil
}

// archived returns the IDs of the archived tasks that are chosen.
func (i *Inspector) archived(
	ctx context.Context, queue string, most int, choose func(*asynq.TaskInfo) bool,
) ([]string, error) {
	var chosen []string
	for page := 1; page <= mostArchived/archivePage; page++ {
		if err := ctx.Err(); err != nil { // asynq takes no context
			return nil, fmt.Errorf("delayqueue: list archived tasks: %w", context.Cause(ctx))
		}
		infos, err := i.engine.Tasks().ListArchivedTasks(queue, asynq.PageSize(archivePage), asynq.Page(page))
		if err != nil {
			return nil, fmt.Errorf("delayqueue: list archived tasks: %w", err)
		}
		if len(infos) == 0 {
			break
		}
		for _, info := range infos {
			if len(chosen) >= most {
				return chosen, nil
			}
			if info.ID != "" && choose(info) { // an entry without an ID is one whose task is gone
				chosen = append(chosen, info.ID)
			}
		}
	}
	return chosen, nil
}
