package attach

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/logsafe"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// stopsItself returns an error if the caller is a handler that has one of the keys of a task that would have it stop.
func stopsItself(ctx context.Context, task *asynq.Task, keys []string) error {
	for own := leasing.By(ctx); own != nil; own = own.Outer {
		lease, ok := own.Lease.(*locking.Lease)
		if ok && lease.Err() == nil && slices.ContainsFunc(lease.Keys(), func(key string) bool { return slices.Contains(keys, key) }) {
			return &middleware.KeyError{Type: task.Type(), Err: errors.New("the handler that enqueues the task has one of its keys, and would be " +
				"superseded: leave out Supersede, and the task runs once the handler has returned")}
		}
	}
	return nil
}

// foremost returns the group that a task supersedes; "" if it does not.
func foremost(task *asynq.Task, s *middleware.Supersede) string {
	if s == nil {
		return ""
	}
	return cmp.Or(s.Group, task.Type())
}

// supersede has the holders of a task's keys stop, and ends the tasks that wait for the key to do the same, unless key is empty. What fails
// here is done when the task is refused the next time.
func (p *Producer) supersede(
	ctx context.Context, task *asynq.Task, keys []string, key string, t delayqueue.Task, how *middleware.Supersede,
) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	ended, err := p.engine().Supersede(ctx, key, holdings.Supersession{
		Keys: keys, Group: cmp.Or(how.Group, task.Type()), Queue: t.Queue, ID: t.ID, Grace: how.Grace,
	}, false)
	if err != nil {
		p.opts.Logger.WarnContext(ctx, "tasks were not told that they are superseded; they are told when the task is refused again",
			"task", t.String(), "error", logsafe.Error(err))
	}
	for _, one := range ended {
		tell(ctx, p.opts.Observer, p.opts.Logger, &middleware.Event{
			Kind: middleware.Ended, Task: delayqueue.Task(one.Task), Type: one.Type, Keys: keys, Key: key,
			Err: &middleware.CancelledError{By: "task " + t.String(), Why: line.SupersededWhy, Next: t},
		})
	}
}
