package attach

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/logsafe"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

const (
	// looksAfter is how long a worker looks after a queue without a further sweep. It is shorter than the least After: a worker
	// that has died does not keep others from its tasks.
	looksAfter = 2*holdings.Interval - time.Second
	// sweepEach is how long the next sweep may be put off while nobody dies. A task without a lease is found by two of them.
	sweepEach = 2*holdings.Interval - time.Second
	// unleasedFor is how long a task must be active without a lease before it is taken for lost.
	unleasedFor = holdings.Interval
	// sweepTimeout bounds what is done for one queue, and heldAfterDeath how long a key stays locked if the worker dies that
	// takes it from a dead one.
	sweepTimeout   = 30 * time.Second
	heldAfterDeath = 5 * time.Second
	// takenAtOnce is how many tasks of a queue are taken back at a time: a dead worker may have had a thousand.
	takenAtOnce = 16
	// sweptAtOnce is how many queues are looked at at a time: a master that does not answer must not keep those of others waiting.
	sweptAtOnce = 64
)

// recovery takes back the tasks of workers that do not report any more. The zero value is off.
type recovery struct {
	Recovery

	on       bool
	frees    bool   // the locks are on the tasks' Redis
	name     string // of this worker, in its runs and locks
	reporter atomic.Pointer[holdings.Reporter]
	looked   chan struct{}
	ended    func(why error) // ends the leases that have begun until now
	unfollow func()
	cancel   context.CancelFunc
	swept    sync.WaitGroup

	last time.Time // when the queues were swept, unless that has failed, and who was dead then: only sweeps use it
	dead map[string]holdings.Last
}

// recoverWith prepares the recovery that the options ask for.
func (a *Attached) recoverWith() {
	r := &a.recovery
	frees := a.opts.RedisKeys != nil && locks.Colocated(a.locker) != nil
	r.Recovery, r.looked = a.opts.Recovery.withDefaults(frees), make(chan struct{}, 1)
	r.on, r.name = r.After > 0 && !a.opts.DisableReports, lockwire.NewName()
	r.frees = r.on && frees
	r.ended, r.unfollow = func(error) {}, func() {}
	if r.frees {
		r.ended, r.unfollow = locks.EndWhenSilent(a.locker, r.name, r.silent)
	}
}

// lapse returns after how long without a report this worker gives its leases up. The second is for the leases, which look so often, and
// the fiftieth for clocks that do not run equally fast.
func (r *recovery) lapse() time.Duration {
	if !r.on {
		return 0
	}
	return r.After - r.After/50 - time.Second
}

// reported returns what the reports say: after how long without one others may take back the tasks of this worker; 0 for never.
func (r *recovery) reported() time.Duration {
	if !r.on {
		return 0
	}
	return r.After
}

// silent returns ErrSilent if others may be about to take back the tasks of this worker.
func (r *recovery) silent() error {
	if reporter := r.reporter.Load(); reporter != nil && reporter.Silent() >= r.lapse() {
		return ErrSilent
	}
	return nil
}

// worker returns the name that the runs have which begin now; "" if others may not take them back. This worker must have told them
// that it lives.
func (r *recovery) worker() string {
	if reporter := r.reporter.Load(); r.on && reporter != nil && reporter.Reports(r.After/2) {
		return r.name
	}
	return ""
}

// look has the queues swept after a report.
func (r *recovery) look() {
	select {
	case r.looked <- struct{}{}:
	default:
	}
}

// start sweeps after each report from now on.
func (r *recovery) start(a *Attached, reporter *holdings.Reporter) {
	if !r.on {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.swept.Go(func() {
		for {
			select {
			case <-r.looked:
				a.sweep(ctx, reporter)
			case <-ctx.Done():
				return
			}
		}
	})
}

func (r *recovery) close() {
	if r.cancel != nil {
		r.cancel()
	}
	r.swept.Wait()
}

// lapsed ends all leases that others may have taken, before this worker counts as heard again.
func (a *Attached) lapsed() {
	a.recovery.ended(ErrSilent)
	a.opts.Logger.Warn("this worker could not report for so long that others may have taken back its tasks; the leases on the tasks' " +
		"Redis have ended")
}

// crowded says why nobody is taken for dead.
func (a *Attached) crowded() {
	if a.recovery.on {
		a.opts.Logger.Warn("so many workers report that the tasks of dead ones are left to asynq's recoverer", "most", holdings.MostWorkers)
	}
}

// sweep takes back the tasks of dead workers, and those that nobody runs, in the queues that this worker looks after.
func (a *Attached) sweep(ctx context.Context, reporter *holdings.Reporter) {
	dead := reporter.Life().Dead()
	r := &a.recovery
	if time.Since(r.last) < sweepEach && maps.Equal(dead, r.dead) {
		return
	}
	r.last, r.dead = time.Now(), dead
	queues := a.swept()
	errs, at := make([]error, len(queues)), make(chan struct{}, sweptAtOnce)
	var all sync.WaitGroup
	for i, queue := range queues {
		at <- struct{}{}
		all.Go(func() {
			defer func() { <-at }()
			errs[i] = a.sweepQueue(ctx, queue, reporter, dead)
		})
	}
	all.Wait()
	for i, queue := range queues {
		if errs[i] != nil && ctx.Err() == nil {
			r.last = time.Time{}
			a.opts.Logger.WarnContext(ctx, "the tasks of dead workers could not be taken back; this is tried again after the next report",
				"queue", queue, "error", logsafe.Error(errs[i]))
		}
	}
}

// swept returns the queues of the servers, and with lanes those in lanes in which there may be tasks.
func (a *Attached) swept() []string {
	queues := slices.Collect(maps.Keys(a.served()))
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, server := range a.servers {
		queues = append(queues, server.InLanes()...)
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}

func (a *Attached) sweepQueue(ctx context.Context, queue string, reporter *holdings.Reporter, dead map[string]holdings.Last) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	engine := (*line.Engine)(a.queue)
	remnants, mine, err := engine.Sweep(ctx, queue, reporter.ID(), looksAfter, unleasedFor, slices.Sorted(maps.Keys(dead)))
	if err != nil || !mine {
		return err
	}
	remnants, err = certain(ctx, engine, remnants)
	var mu sync.Mutex
	errs, back := []error{err}, 0
	var done sync.WaitGroup
	for some := range slices.Chunk(remnants, max((len(remnants)+takenAtOnce-1)/takenAtOnce, 1)) {
		done.Go(func() {
			for _, m := range some {
				left, err := a.takeBack(ctx, engine, reporter, m)
				mu.Lock()
				errs = append(errs, err)
				if left == line.Back {
					back++
				}
				mu.Unlock()
			}
		})
	}
	done.Wait()
	if back > 0 {
		a.opts.Logger.WarnContext(ctx, "tasks run again whose workers do not report any more", "queue", queue, "tasks", back)
	}
	return errors.Join(errs...)
}

// certain returns the remnants that nobody runs: of those that have had no lease for a while, no server of asynq says that it
// runs it.
func certain(ctx context.Context, engine *line.Engine, all []line.Remnant) ([]line.Remnant, error) {
	if !slices.ContainsFunc(all, func(m line.Remnant) bool { return !m.Silent }) {
		return all, nil
	}
	running, err := runs(ctx, engine)
	return slices.DeleteFunc(all, func(m line.Remnant) bool { return !m.Silent && (err != nil || running[m.Task]) }), err
}

// runs returns the tasks that asynq's servers run, those without railtoken included, as they tell every 5 s.
func runs(ctx context.Context, engine *line.Engine) (map[line.Task]bool, error) {
	servers, err := asynqwire.Servers(ctx, engine.Client())
	if err != nil {
		return nil, err
	}
	running := map[line.Task]bool{}
	for _, s := range servers {
		tasks, err := s.Runs(ctx, engine.Client())
		if err != nil {
			return nil, err
		}
		for _, t := range tasks {
			running[line.Task{Queue: t.Queue, ID: t.ID}] = true
		}
	}
	return running, nil
}

// takeBack has a task run again whose run is over.
func (a *Attached) takeBack(ctx context.Context, engine *line.Engine, reporter *holdings.Reporter, m line.Remnant) (line.Left, error) {
	var freed []string
	left, err := engine.TakeBack(ctx, m, a.recovery.Deaths, func(keys []string) (silent bool, err error) {
		dead := reporter.Life().Dead()
		last, ok := dead[lockwire.WorkerOfRun(m.Run)]
		if !ok {
			return false, nil
		}
		freed = a.free(ctx, reporter, m, dead, keys)
		return reporter.SilentSince(ctx, last)
	})
	a.wakeNext(freed)
	if err != nil || left == line.Over || left == line.Cancelled {
		return line.Over, err
	}
	if left == line.Counted {
		a.opts.Logger.WarnContext(ctx, "the runs of a task end again and again with their workers; asynq counts this one as a failure",
			"task", m.String(), "deaths", a.recovery.Deaths)
		return left, nil
	}
	tell(ctx, a.opts.Observer, a.opts.Logger, &middleware.Event{Kind: Recovered, Task: delayqueue.Task(m.Task)})
	return left, nil
}

// free takes the locks of dead workers on the keys of a run, and releases them. It returns the keys for which others wait. What
// fails ends with its TTL.
func (a *Attached) free(ctx context.Context, reporter *holdings.Reporter, m line.Remnant, dead map[string]holdings.Last, keys []string,
) (awaited []string) {
	if !a.recovery.frees {
		return nil
	}
	for _, key := range keys {
		lock, _ := a.opts.RedisKeys(key)
		value, err := a.client.Get(ctx, lock).Result()
		last, ok := dead[lockwire.WorkerOfOwner(value)]
		if err != nil || !ok {
			continue
		}
		// Its worker has taken the lock before it fell silent, unless it was heard before this look.
		if silent, err := reporter.SilentSince(ctx, last); err != nil || !silent {
			continue
		}
		lease, err := locks.TakeOver(ctx, a.locker, lockaccess.Request{
			Key: key, Expect: lockwire.Name(value), Mark: lockwire.ParseOwner(value).Mark, Label: locking.DefaultLabel() + "/recovery",
			By: "the recovery of tasks", Why: "its worker did not report for " + a.recovery.After.String(), TTL: heldAfterDeath,
		})
		if err == nil {
			err = lease.Release(ctx)
		}
		if err != nil {
			a.opts.Logger.WarnContext(ctx, "a key of a dead worker could not be released; it becomes free when its TTL ends",
				"task", m.String(), "keys", logsafe.Keys([]string{key}), "error", logsafe.Error(err))
		} else if lease.ShouldNotify() {
			awaited = append(awaited, key)
		}
	}
	return awaited
}
