package attach

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/locking"
)

// Scheduler enqueues tasks periodically: an asynq.Scheduler or an asynq.PeriodicTaskManager.
type Scheduler interface {
	Start() error
	Shutdown()
}

const (
	// scheduleTTL is how long a schedule is interrupted after a crash of the process that runs it.
	scheduleTTL = 5 * time.Second
	// schedulePause is how long a process waits after its scheduler has failed to start.
	schedulePause = time.Second
	// tenure is the maximum time for which one process runs a schedule.
	tenure = 365 * 24 * time.Hour
)

// Schedule runs a scheduler in one of the processes that call it with the same name. When that process ends, crashes or
// hangs, another one takes over. Each tick is enqueued once; if another process has already enqueued a tick, that is
// not an error. Schedule returns at once, and [Attached.Stop] ends the schedule.
//
// newScheduler creates the scheduler with asynq.NewSchedulerFromRedisClient or asynq.NewPeriodicTaskManager on the
// given client, and does not start it. Schedule calls it once and returns its error. It is called again each time this
// process takes over the schedule.
//
// Ticks are missed while the schedule moves to another process: for up to 6 s after a crash, and for a moment after an
// orderly shutdown. An @every entry starts anew in each process, so use times of the day instead of long intervals. A
// process that is ready to take over queries Redis about twice a second.
//
// A task with asynq.TaskID that is archived keeps its ID, so asynq refuses all later ticks of its entry until an operator
// deletes or replays it. A handler with middleware.FailFast archives a task in conflict: for such entries use
// FailFast{Outcome: middleware.Discard} or middleware.Requeue, or asynq.Unique instead of the ID.
//
// An asynq.Scheduler logs at its shutdown that it could not close the shared connection. Ignore that error.
func (a *Attached) Schedule(name string, newScheduler func(client redis.UniversalClient) (Scheduler, error)) error {
	if name == "" || newScheduler == nil {
		return errors.New("attach: Schedule needs a name, which all processes with this schedule share, " +
			"and a function that creates the scheduler")
	}
	if _, err := newScheduler(a.client); err != nil {
		return fmt.Errorf("attach: schedule %q: %w", name, err)
	}
	// It has its own locks on the Redis of the tasks: no tick is enqueued without that Redis, and a lease may last as
	// long as the process.
	locker, err := locking.NewSingle(a.client, locking.SingleOptions{FenceTTL: 2 * tenure})
	if err != nil {
		return fmt.Errorf("attach: schedule %q: %w", name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.running.Go(func() {
		<-a.stopping
		cancel()
	})
	a.running.Go(func() {
		defer locker.Close()
		for ctx.Err() == nil {
			opts := locking.Options{TTL: scheduleTTL, MaxHold: tenure}
			err := locking.Do(ctx, locker, []string{"railtoken:schedule:" + name}, opts,
				func(ctx context.Context, lease *locking.Lease) error {
					return a.lead(ctx, name, lease, newScheduler)
				})
			if ctx.Err() != nil {
				return
			}
			a.opts.Logger.WarnContext(ctx, "this process does not run the schedule now; it, or another, takes it over",
				"schedule", name, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(schedulePause):
			}
		}
	})
	return nil
}

// lead runs the scheduler until ctx ends, because the lease was lost or Stop was called.
func (a *Attached) lead(
	ctx context.Context, name string, lease *locking.Lease, newScheduler func(redis.UniversalClient) (Scheduler, error),
) error {
	token, err := lease.Fence(ctx)
	if err != nil {
		return err
	}
	s, err := newScheduler(broker.NewFirings(a.client, name, token, func() bool { return lease.Err() == nil }))
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		return err
	}
	a.opts.Logger.InfoContext(ctx, "this process runs the schedule", "schedule", name)
	<-ctx.Done()
	s.Shutdown()
	return nil
}
