package middleware

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
)

// defaultMaxReplays is the default of ReplayOptions.Most.
const defaultMaxReplays = 1000

// ReplayOptions selects the archived tasks to replay. Queue must be set; every other field has a default.
type ReplayOptions struct {
	// Queue is the asynq queue whose archived tasks are replayed. Tasks that Requeue.Queue has moved are archived in
	// that queue.
	Queue string
	// Key, if set, replays only tasks that were archived because of this key.
	Key string
	// Limit, if not NoLimit, replays only tasks that reached this limit.
	Limit delayqueue.Limit
	// Most is the maximum number of tasks to replay, beginning with those that were archived first; 1000 when zero.
	Most int
}

// Validate returns an error that lists all problems with the options, or nil.
func (o ReplayOptions) Validate() error {
	var errs []error
	if strings.TrimSpace(o.Queue) == "" {
		errs = append(errs,
			errors.New("middleware: ReplayOptions.Queue is not set: name the queue whose archive is to be replayed"))
	}
	if o.Most < 0 {
		errs = append(errs, fmt.Errorf("middleware: ReplayOptions.Most is %d: it cannot be negative", o.Most))
	}
	return errors.Join(errs...)
}

// ReplayConflicts runs archived tasks again if they were archived at a limit of their wait. It returns how many it has
// replayed, even if it also returns an error. Each task is added behind the pending tasks of its queue, and its
// conflict count and age start at zero. Tasks that were archived for another reason stay archived, including those of
// [FailFast].
//
// A replayed task whose key is still held waits again, and may be archived again. Call ReplayConflicts once the cause
// has been removed.
func ReplayConflicts(ctx context.Context, queue *delayqueue.Queue, opts ReplayOptions) (int, error) {
	if err := opts.Validate(); err != nil {
		return 0, err
	}
	if opts.Most == 0 {
		opts.Most = defaultMaxReplays
	}
	return queue.Inspector().ReplayAll(ctx, opts.Queue, opts.Most, opts.choose)
}

// choose reports whether an archived task is to be replayed.
func (o ReplayOptions) choose(info *asynq.TaskInfo) bool {
	conflict, err := ParseConflict(info.Result)
	if err != nil || conflict.Limit == delayqueue.NoLimit {
		return false
	}
	if o.Key != "" && conflict.Key != o.Key || o.Limit != delayqueue.NoLimit && conflict.Limit != o.Limit {
		return false
	}
	// A result outlives the run that wrote it: since then, the task may have been run by hand and archived for another
	// reason.
	return strings.Contains(info.LastErr, conflict.headline())
}
