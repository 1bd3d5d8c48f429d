package tasks

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/railtoken/railtoken/bench/internal/server"
)

// Rehearse runs the contestant, for as long as the bound says, and learns which commands it sends. Nothing of it is
// measured.
func Rehearse(ctx context.Context, dir string, c Contestant, s Scenario, bound time.Duration) (*server.Sent, error) {
	at, err := server.Start(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer at.Kill()
	return server.Learn(ctx, at, func() error {
		_, err := counted(ctx, at, nil, c, s, bound)
		return err
	})
}

// Run lets the contestant do the scenario's tasks on a redis-server of its own, whose log goes to the directory, for as
// long as the bound says at most. The tasks are enqueued before it starts. sent counts the commands; nil disables that.
func Run(
	ctx context.Context, dir string, c Contestant, s Scenario, bound time.Duration, sent *server.Sent,
) (r Result, err error) {
	at, err := server.Start(ctx, dir)
	if err != nil {
		return r, err
	}
	defer at.Kill()
	return counted(ctx, at, sent, c, s, bound)
}

// StartHeld has a contestant run a task that holds a key for an hour, and n others that wait for it, each for an hour
// when asynq's timer decides. stop ends it.
func StartHeld(ctx context.Context, addr string, c Contestant, n int) (stop func() error, err error) {
	s := Scenario{}
	for range n + 1 {
		s = s.with(Task{Key: "order-000001", Work: time.Hour})
	}
	job := Job{Addr: addr, Scenario: s, Tally: NewTally(s.Tasks), RetryDelay: time.Hour}
	if err := enqueue(ctx, job, c, s.Tasks, time.Time{}); err != nil {
		return nil, err
	}
	stopServer, err := c.start(ctx, job)
	if err != nil {
		return nil, err
	}
	return func() error { return job.end(stopServer) }, nil
}

// counted runs the contestant between two looks at the commands that the server has got.
func counted(
	ctx context.Context, at *server.Server, sent *server.Sent, c Contestant, s Scenario, bound time.Duration,
) (r Result, err error) {
	job := Job{Addr: at.Addr(), Scenario: s, Tally: NewTally(s.Tasks)}
	if err := enqueue(ctx, job, c, s.early(), time.Time{}); err != nil {
		return r, err
	}
	before, err := sent.Count(ctx, at)
	if err != nil {
		return r, err
	}
	if r, err = work(ctx, c, job, bound); err != nil {
		return r, err
	}
	after, err := sent.Count(ctx, at)
	r.Commands = after - before
	return r, err
}

// work lets the contestant work until all is over or the time is up, and stops it.
func work(ctx context.Context, c Contestant, job Job, bound time.Duration) (Result, error) {
	runtime.GC() // the garbage of the last contestant is not this one's
	began := time.Now()
	up := time.After(bound)
	stop, err := c.start(ctx, job)
	if err != nil {
		return Result{}, err
	}
	added := make(chan error, 1)
	go func() { added <- enqueue(ctx, job, c, job.Scenario.late(), began) }()
	select {
	case <-job.Tally.Over():
	case <-up:
	case <-ctx.Done():
	}
	r := job.Tally.Freeze(began)
	return r, errors.Join(<-added, job.end(stop), ctx.Err())
}
