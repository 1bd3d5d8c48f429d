package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/middleware"
)

// Superseded is the kind of the event of a payload that does not run because a later one has come: see [Latest]. Its Task is that of
// the payload, and Next the task that runs in place of it. If the payload waited, before its run or for a retry, the two are the same,
// and the Producer that brings the later one has the event, with the type of that one.
const Superseded middleware.EventKind = taskrun.Superseded

// Latest is an option for [Producer.EnqueueContext]: of the tasks of a queue with the same type, or Group, and the same keys, only the
// latest payload is to run, for example the last of many price changes. The keys are from [Keys] or [ProducerOptions].Keys.
//
// While one of them waits, EnqueueContext gives it the type, payload, headers and options of the new one. Its ID stays, also in the
// TaskInfo, and the observer gets a [Superseded] event. A task that has begun to run is left alone, and another one runs after it. No
// payload runs after one that was accepted later: a task that runs late, because it was retried or its worker has died, completes
// without its handler if a later one has begun. Its result then says so, and [Producer.Wait] returns [ErrSuperseded]. A payload that has
// not begun may run before a later one. The order of calls that overlap is that in which Redis has carried them out.
//
// That needs servers of this package that lock the same keys, and tasks of a group whose handlers have the same middleware, with a
// strategy that waits, as Requeue does: with FailFast, Discard or a limit the last payload ends as the strategy says if it meets the run
// of the payload before. If Redis has lost the record of the newest task, which it keeps for 48 h longer than Most, each task runs.
// Servers on asynq's own client, and of earlier versions, run every task. The task has a header of railtoken's.
//
// Unique, TaskID, Group, ProcessIn and ProcessAt contradict it, and so do EnqueueInOrder and each WhenHeld but that of
// [middleware.Supersede]: the error says so, and nothing is enqueued. As an option of asynq.NewTask, asynq.Client or a Scheduler it has no effect.
type Latest struct {
	// Quiet is how long after the last call the task is due: at once when zero. asynq rounds it up to whole seconds, and looks
	// for tasks that are due each asynq.Config.DelayedTaskCheckInterval (5 s by default).
	Quiet time.Duration
	// Most is how long after the first call that no run has begun with the task is due at the latest, however
	// often others follow: 10 x Quiet when zero, one year at most.
	Most time.Duration
	// Group tells apart tasks with the same keys of which each is to run: the type of the task when empty.
	Group string
}

// String returns how asynq shows the option.
func (l Latest) String() string { return fmt.Sprintf("Latest(%s, %s, %q)", l.Quiet, l.Most, l.Group) }

// Type returns a type that asynq ignores.
func (Latest) Type() asynq.OptionType { return -1 }

// Value returns the option.
func (l Latest) Value() any { return l }

// mostLatest is the largest Most.
const mostLatest = 365 * 24 * time.Hour

// Validate returns an error that lists all problems, or nil.
func (l Latest) Validate() error {
	var errs []error
	if l.Quiet != 0 && (l.Quiet < time.Millisecond || l.Quiet > mostLatest) {
		errs = append(errs, fmt.Errorf("attach: Latest.Quiet is %v: give 0, to run at once, or 1ms to %v", l.Quiet, mostLatest))
	}
	if l.Most != 0 && (l.Most < time.Millisecond || l.Most > mostLatest || l.Most < l.Quiet) {
		errs = append(errs, fmt.Errorf("attach: Latest.Most is %v: give at least Quiet, %v, and at most %v, or 0 for 10 x Quiet", l.Most, l.Quiet,
			mostLatest))
	}
	return errors.Join(errs...)
}

// withDefaults returns a valid option with its defaults.
func (l Latest) withDefaults(task *asynq.Task) Latest {
	if l.Most == 0 {
		l.Most = min(10*l.Quiet, mostLatest)
	}
	if l.Group == "" {
		l.Group = task.Type()
	}
	return l
}

var errLatestAlone = errors.New("attach: Latest replaces the task that waits, and WhenHeld says how one waits: use one of them, or WhenHeld with Supersede")

// latestOf returns the last such option among opts, or nil.
func latestOf(opts []asynq.Option) (l *Latest) {
	for _, o := range opts {
		switch o := o.(type) {
		case Latest:
			l = &o
		case *Latest:
			l = o
		}
	}
	return l
}

// enqueueLatest enqueues a task of which only the latest payload is to run.
func (p *Producer) enqueueLatest(
	ctx context.Context, task *asynq.Task, keys []string, l Latest, s middleware.Strategy, opts []asynq.Option,
) (*asynq.TaskInfo, error) {
	supersede, supersedes := s.(middleware.Supersede)
	if pointer, ok := s.(*middleware.Supersede); ok && pointer != nil {
		supersede, supersedes = *pointer, true
	}
	switch err := l.Validate(); {
	case err != nil:
		return nil, err
	case s != nil && !supersedes:
		return nil, errLatestAlone
	case supersedes && l.Quiet > 0:
		return nil, delayqueue.ErrNotNow
	case len(keys) == 0:
		return nil, &middleware.KeyError{
			Type: task.Type(), Err: errors.New("Latest needs the keys of the task: give them with Keys, or a key function for its type"),
		}
	case slices.ContainsFunc(opts, func(o asynq.Option) bool { return givesIdentity[o.Type()] }):
		return nil, line.ErrNotLatest
	}
	if supersedes {
		if err := stopsItself(ctx, task, keys); err != nil {
			return nil, err
		}
	}
	l = l.withDefaults(task)
	sorted := slices.Clone(keys)
	slices.Sort(sorted)
	info, placed, err := p.engine().EnqueueLatest(ctx, task, keys,
		line.Latest{Record: line.RecordOf(l.Group, slices.Compact(sorted)), Quiet: l.Quiet, Most: l.Most}, opts...)
	if err == nil && placed.Replaced {
		t := delayqueue.Task(placed.Task)
		tell(ctx, p.opts.Observer, p.opts.Logger, &middleware.Event{
			Kind: Superseded, Task: t, Type: task.Type(), Keys: keys, Next: t,
		})
	}
	if err == nil && supersedes {
		p.tellHolders(ctx, supersession(task, keys, delayqueue.Task(placed.Task), &supersede))
	}
	return info, err
}

// givesIdentity are asynq's options that a task of which only the latest is to run cannot have.
var givesIdentity = map[asynq.OptionType]bool{
	asynq.UniqueOpt: true, asynq.TaskIDOpt: true, asynq.GroupOpt: true, asynq.ProcessInOpt: true, asynq.ProcessAtOpt: true,
}
