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

// supersession returns what a task asks for, which this Producer has enqueued.
func supersession(task *asynq.Task, keys []string, t delayqueue.Task, how *middleware.Supersede) holdings.Supersession {
	return holdings.Supersession{Keys: keys, Group: foremost(task, how), Queue: t.Queue, ID: t.ID, Grace: how.Grace}
}

// supersede has the holders of keys stop, and ends the tasks that wait for them to do the same. key is the one that the task waits for. What
// fails here is done when the task is refused the next time.
func (p *Producer) supersede(ctx context.Context, s holdings.Supersession, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	ended, err := p.engine().Supersede(ctx, s, false)
	p.warnOfUntold(ctx, s, err)
	next := delayqueue.Task{Queue: s.Queue, ID: s.ID}
	for _, one := range ended {
		tell(ctx, p.opts.Observer, p.opts.Logger, &middleware.Event{
			Kind: middleware.Ended, Task: delayqueue.Task(one.Task), Type: one.Type, Keys: s.Keys, Key: key,
			Err: &middleware.CancelledError{By: "task " + next.String(), Why: line.SupersededWhy, Next: next},
		})
	}
}

// tellHolders has the holders of keys stop for a task that does not wait yet.
func (p *Producer) tellHolders(ctx context.Context, s holdings.Supersession) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	p.warnOfUntold(ctx, s, p.engine().TellHolders(ctx, s))
}

func (p *Producer) warnOfUntold(ctx context.Context, s holdings.Supersession, err error) {
	if err != nil {
		p.opts.Logger.WarnContext(ctx, "tasks were not told that they are superseded; they are told when the task is refused again",
			"task", line.Task{Queue: s.Queue, ID: s.ID}.String(), "error", logsafe.Error(err))
	}
}
