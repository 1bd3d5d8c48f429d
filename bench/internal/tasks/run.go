package tasks

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/workers"
	"github.com/railtoken/railtoken/worker"
)

// Rehearse runs the contestant, for as long as the bound says, and learns which commands it sends. Nothing of it is
// measured.
func Rehearse(ctx context.Context, dir string, c Contestant, s Scenario, bound time.Duration) (*server.Sent, error) {
	all, at, err := c.servers(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer server.KillAll(all)
	return server.Learn(ctx, all[0], func() error {
		_, err := run(ctx, all, at, nil, c, s, bound)
		return err
	})
}

// Run lets the contestant do the scenario's tasks on a redis-server of its own, or on a Cluster, whose logs go to the directory, for as
// long as the bound says at most. The tasks are enqueued before it starts. sent counts the commands; nil disables that.
func Run(
	ctx context.Context, dir string, c Contestant, s Scenario, bound time.Duration, sent *server.Sent,
) (r Result, err error) {
	all, at, err := c.servers(ctx, dir)
	if err != nil {
		return r, err
	}
	defer server.KillAll(all)
	return run(ctx, all, at, sent, c, s, bound)
}

// StartHeld has a contestant run a task that holds a key for an hour, and n others that wait for it, each for an hour
// when asynq's timer decides. stop ends it.
func StartHeld(ctx context.Context, addr string, c Contestant, n int) (stop func() error, err error) {
	s := Scenario{}
	for range n + 1 {
		s = s.with(Task{Key: "order-000001", Work: time.Hour})
	}
	job := Job{Redis: worker.Redis{Addr: addr}, Scenario: s, Tally: NewTally(s.Tasks), RetryDelay: time.Hour}
	if err := enqueue(ctx, job, c, s.Tasks, time.Time{}); err != nil {
		return nil, err
	}
	stopServer, err := c.start(ctx, job)
	if err != nil {
		return nil, err
	}
	return func() error { return job.end(stopServer) }, nil
}

// run lets the contestant work until all is over or the time is up, and stops it. It looks at the commands that the
// servers have got before and after that.
func run(
	ctx context.Context, all []*server.Server, at worker.Redis, sent *server.Sent, c Contestant, s Scenario, bound time.Duration,
) (r Result, err error) {
	job := Job{Redis: at, Scenario: s, Tally: NewTally(s.Tasks)}
	if err := enqueue(ctx, job, c, s.early(), time.Time{}); err != nil {
		return r, err
	}
	before, err := sent.Count(ctx, all...)
	if err != nil {
		return r, err
	}
	if s.Busy {
		relax, err := measure.KeepBusy()
		if err != nil {
			return r, err
		}
		defer relax()
	}
	job.Tally.computes = s.Computes
	runtime.GC() // the garbage of the last contestant is not this one's
	began := time.Now()
	up := time.After(bound)
	stop, err := c.start(ctx, job)
	if err != nil {
		return r, err
	}
	added := make(chan error, 1)
	go func() { added <- enqueue(ctx, job, c, job.Scenario.late(), began) }()
	select {
	case <-job.Tally.Over():
	case <-up:
	case <-ctx.Done():
	}
	r = job.Tally.Freeze(began)
	err = errors.Join(<-added, job.end(stop), ctx.Err())
	after, uncounted := sent.Count(ctx, all...)
	r.Commands = after - before
	return r, errors.Join(err, uncounted)
}

// enqueue adds the tasks, in their order when there is one producer, with their places as their IDs: late ones at their
// times after began, whatever has become of those before.
func enqueue(ctx context.Context, job Job, c Contestant, tasks []Task, began time.Time) error {
	producers := max(job.Scenario.Producers, 1)
	alarms, end := newAlarms(producers)
	defer end()
	return workers.EnqueueTo(ctx, job.Redis, producers, len(tasks), func(client *worker.Client, i int) error {
		if err := alarms[i%producers](ctx, began.Add(tasks[i].After)); err != nil {
			return err
		}
		return c.add(ctx, client, tasks[i])
	})
}

// newAlarms returns n alarms, each for one goroutine, and their end.
func newAlarms(n int) (alarms []func(context.Context, time.Time) error, end func()) {
	var ends []func()
	for range n {
		until, end := server.NewAlarm()
		alarms, ends = append(alarms, until), append(ends, end)
	}
	return alarms, func() {
		for _, end := range ends {
			end()
		}
	}
}

// add enqueues a task.
func (c Contestant) add(ctx context.Context, client *worker.Client, t Task) (err error) {
	p := payload{N: t.N, Key: t.Key}
	opts := []asynq.Option{asynq.Queue(t.Queue), asynq.TaskID(strconv.Itoa(t.N))}
	if c.Parks && !c.InOrder && !c.Found {
		opts = append(opts, attach.Keys(t.Key))
	}
	if c.InOrder {
		_, err = client.EnqueueInOrder(ctx, t.Key, taskType, p, opts...)
	} else {
		_, err = client.Enqueue(ctx, taskType, p, opts...)
	}
	return err
}
