package delayqueue

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/replay.lua
	replaySource string
	replayScript = redis.NewScript(recordSource + replaySource)
)

const (
	// mostArchived is how many tasks asynq keeps in the archive of a queue.
	mostArchived = 10_000
	archivePage  = 100
)

// ErrNotArchived reports that a task is not in asynq's archive, and was left alone. The error that matches it is a [NotArchivedError].
var ErrNotArchived = errors.New("delayqueue: the task is not archived")

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

// Replay runs an archived task again: it is put behind the others that are pending in its queue, whatever it was archived for. Its conflicts
// and its age count anew. Its result, which was that of the end that it came to, is cleared. Its retry count, its deadline and all else stay.
//
// The error matches [ErrGone] when asynq knows no such task, and [ErrNotArchived] when it is somewhere else, as after another Replay.
func (q *Queue) Replay(ctx context.Context, t Task) error {
	keys := []string{t.hash(), t.prefix() + "archived", t.prefix() + "pending"}
	state, err := q.runSettled(ctx, replayScript, keys, t.ID, time.Now().UnixNano())
	switch {
	case err != nil:
		return fmt.Errorf("delayqueue: replay task %s: %w", t, err)
	case State(state) == StateGone:
		return ErrGone
	case State(state) != StateArchived:
		return &NotArchivedError{Task: t, State: State(state)}
	}
	return nil
}

// ReplayAll replays, as [Queue.Replay] does, the tasks in the archive of a queue for which choose returns true, but no more than most, those
// that have been there longest first. It returns how many it has replayed, also with an error. A task that comes to the archive
// while it works, also a replayed one, may be left for the next call. The error matches asynq.ErrQueueNotFound when asynq knows no such queue.
//
// It reads the archive, of 10 000 tasks at most, 100 in two calls to Redis, and makes one for each task that it replays.
func (q *Queue) ReplayAll(ctx context.Context, queue string, most int, choose func(*asynq.TaskInfo) bool) (int, error) {
	chosen, err := q.archived(ctx, queue, most, choose)
	if err != nil {
		return 0, err
	}
	replayed := 0
	for _, id := range chosen {
		err := q.Replay(ctx, Task{Queue: queue, ID: id})
		switch {
		case err == nil:
			replayed++
		case !errors.Is(err, ErrGone) && !errors.Is(err, ErrNotArchived): // these have left since
			return replayed, err
		}
	}
	return replayed, nil
}

// archived returns the IDs of the tasks in an archive that are chosen.
func (q *Queue) archived(ctx context.Context, queue string, most int, choose func(*asynq.TaskInfo) bool) ([]string, error) {
	var chosen []string
	for page := 1; page <= mostArchived/archivePage; page++ {
		if err := ctx.Err(); err != nil { // asynq takes no context
			return nil, fmt.Errorf("delayqueue: list archived tasks: %w", context.Cause(ctx))
		}
		infos, err := q.inspect.ListArchivedTasks(queue, asynq.PageSize(archivePage), asynq.Page(page))
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
			if info.ID != "" && choose(info) { // without an ID it is an entry whose task is gone
				chosen = append(chosen, info.ID)
			}
		}
	}
	return chosen, nil
}
