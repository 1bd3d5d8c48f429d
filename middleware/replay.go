package middleware

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
)

// defaultMaxReplays is how many tasks one call of [ReplayConflicts] replays at most by default.
const defaultMaxReplays = 1000

// ReplayOptions says which archived tasks are replayed. Queue must be set; every other zero value is a default.
type ReplayOptions struct {
	// Queue is asynq's queue whose archive is looked at. Tasks that Requeue.Queue has taken to another queue are
	// archived in that one.
	Queue string
	// Key, when not empty, replays only tasks that were archived because of this key.
	Key string
	// Limit, when not NoLimit, replays only tasks that reached this limit.
	Limit delayqueue.Limit
	// Most is how many tasks are replayed at most, those that were archived first; 1000 when zero.
	Most int
}

// Validate returns every fault of the options at once, or nil.
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

// ReplayConflicts runs tasks again that were archived at a limit of their waiting, and returns how many, also with an
// error. Each goes behind the pending tasks of its queue, with a conflict count and an age of zero. Tasks that were
// archived for another reason stay, and so do those of [FailFast].
//
// A replayed task whose key is still held waits again, and may be archived again: call ReplayConflicts once the cause
// is mended.
func ReplayConflicts(ctx context.Context, queue *delayqueue.Queue, opts ReplayOptions) (int, error) {
	if err := opts.Validate(); err != nil {
		return 0, err
	}
	if opts.Most == 0 {
		opts.Most = defaultMaxReplays
	}
	return queue.Inspector().ReplayAll(ctx, opts.Queue, opts.Most, opts.choose)
}

// choose reports whether an archived task is one to be replayed.
func (o ReplayOptions) choose(info *asynq.TaskInfo) bool {
	conflict, err := ParseConflict(info.Result)
	if err != nil || conflict.Limit == delayqueue.NoLimit {
		return false
	}
	if o.Key != "" && conflict.Key != o.Key || o.Limit != delayqueue.NoLimit && conflict.Limit != o.Limit {
		return false
	}
	// A result outlives the run that wrote it: the task may have been run by hand since, and have ended for another
	// reason.
	return strings.Contains(info.LastErr, conflict.headline())
}
