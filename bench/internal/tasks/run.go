package tasks

import (
	"context"
	"errors"
	"math"
	"runtime"
	"time"

	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/usage"
)

// Limits bound a run.
type Limits struct {
	// Bound is how long a run may take.
	Bound time.Duration
	// Retries is how often asynq may retry a task.
	Retries int
}

// Rehearse runs the contestant for as long as the limits say and learns which commands it sends. Nothing of it is
// measured.
func Rehearse(ctx context.Context, dir string, c Contestant, s Scenario, limits Limits) (*server.Sent, error) {
	at, err := server.Start(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer at.Kill()
	return server.Learn(ctx, at, func() error {
		_, err := counted(ctx, at, nil, c, s, limits)
		return err
	})
}

// Run lets the contestant do the scenario's tasks on a redis-server of its own, whose log goes to the directory. The
// tasks are enqueued before it starts. sent counts the commands; nil disables that.
func Run(
	ctx context.Context, dir string, c Contestant, s Scenario, limits Limits, sent *server.Sent,
) (r Result, err error) {
	at, err := server.Start(ctx, dir)
	if err != nil {
		return r, err
	}
	defer at.Kill()
	return counted(ctx, at, sent, c, s, limits)
}

// StartHeld has a contestant run a task that holds a key for an hour, and n others that wait for it, each for an hour
// when asynq's timer decides. stop ends it.
func StartHeld(ctx context.Context, addr string, c Contestant, n int) (stop func() error, err error) {
	s := Scenario{}
	for range n + 1 {
		s = s.with(Task{Key: "order-000001", Work: time.Hour})
	}
	job := Job{Addr: addr, Scenario: s, Tally: NewTally(s.Tasks), Retries: retries, RetryDelay: time.Hour}
	if err := enqueue(ctx, job, c, s.Tasks, time.Time{}); err != nil {
		return nil, err
	}
	stopServer, err := c.Start(ctx, job)
	if err != nil {
		return nil, err
	}
	return func() error { return job.end(stopServer) }, nil
}

// counted runs the contestant between two looks at the commands that the server has got.
func counted(
	ctx context.Context, at *server.Server, sent *server.Sent, c Contestant, s Scenario, limits Limits,
) (r Result, err error) {
	job := Job{Addr: at.Addr(), Scenario: s, Tally: NewTally(s.Tasks), Retries: limits.Retries}
	if err := enqueue(ctx, job, c, s.early(), time.Time{}); err != nil {
		return r, err
	}
	before, after := 0.0, math.NaN()
	if sent != nil {
		if before, err = sent.On(at).Count(ctx); err != nil {
			return r, err
		}
	}
	if r, err = work(ctx, c, job, limits.Bound); err != nil {
		return r, err
	}
	if sent != nil {
		if after, err = sent.On(at).Count(ctx); err != nil {
			return r, err
		}
	}
	r.Commands = after - before
	return r, nil
}

// work lets the contestant work until all is over or the time is up, and stops it.
func work(ctx context.Context, c Contestant, job Job, bound time.Duration) (r Result, err error) {
	runtime.GC() // the garbage of the last contestant is not this one's
	spent, err := usage.Process()
	if err != nil {
		return r, err
	}
	began := time.Now()
	up := time.After(bound)
	stop, err := c.Start(ctx, job)
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
	now, err := usage.Process()
	r.CPU = now - spent
	return r, errors.Join(err, <-added, job.end(stop), ctx.Err())
}
