package tasks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/hibiken/asynq"

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

// Rehearse runs the contestant for as long as the limits say and learns which commands it sends. Nothing of it is measured.
func Rehearse(ctx context.Context, dir string, c Contestant, s Scenario, limits Limits) (*server.Sent, error) {
	var sent *server.Sent
	_, err := withServer(ctx, dir, func(at *server.Server) (Result, error) {
		learned := server.LearnFrom(ctx, at)
		r, err := counted(ctx, at, nil, c, s, limits)
		var failed error
		sent, failed = learned()
		return r, errors.Join(err, failed)
	})
	return sent, err
}

// Run lets the contestant do the scenario's tasks on a redis-server of its own, whose log goes to the directory. The tasks
// are enqueued before it starts. sent counts the commands; nil disables that.
func Run(ctx context.Context, dir string, c Contestant, s Scenario, limits Limits, sent *server.Sent) (Result, error) {
	return withServer(ctx, dir, func(at *server.Server) (Result, error) {
		return counted(ctx, at, sent, c, s, limits)
	})
}

func withServer(ctx context.Context, dir string, do func(*server.Server) (Result, error)) (Result, error) {
	at, err := server.Start(ctx, dir)
	if err != nil {
		return Result{}, err
	}
	defer at.Kill()
	return do(at)
}

// counted runs the contestant between two looks at the commands that the server has got.
func counted(ctx context.Context, at *server.Server, sent *server.Sent, c Contestant, s Scenario, limits Limits) (Result, error) {
	job := Job{Addr: at.Addr(), Scenario: s, Tally: NewTally(s.Tasks), Retries: limits.Retries}
	late := func(t Task) bool { return t.Late }
	if err := enqueue(ctx, job, c.InOrder, slices.DeleteFunc(slices.Clone(s.Tasks), late)); err != nil {
		return Result{}, err
	}
	count := func() (float64, error) { return math.NaN(), nil }
	if sent != nil {
		on := sent.On(at)
		count = func() (float64, error) { return on.Count(ctx) }
	}
	before, err := count()
	if err != nil {
		return Result{}, err
	}
	r, err := work(ctx, c, job, limits.Bound)
	if err != nil {
		return r, err
	}
	after, err := count()
	if err != nil {
		return r, err
	}
	r.Commands = after - before
	vanished, err := vanished(job, r)
	r.Lost += vanished
	return r, err
}

// work lets the contestant work until all is over or the time is up, and stops it.
func work(ctx context.Context, c Contestant, job Job, bound time.Duration) (Result, error) {
	runtime.GC() // the garbage of the last contestant is not this one's
	up := time.NewTimer(bound)
	defer up.Stop()
	spent, err := usage.Process()
	if err != nil {
		return Result{}, err
	}
	began := time.Now()
	stop, err := c.Start(ctx, job)
	if err != nil {
		return Result{}, err
	}
	added := make(chan error, 1)
	go func() { added <- enqueueLate(ctx, c, job) }()
	select {
	case <-job.Tally.Over():
	case <-up.C:
	case <-ctx.Done():
	}
	r := job.Tally.Freeze(began)
	now, err := usage.Process()
	r.CPU = now - spent
	return r, errors.Join(err, <-added, stop(), ctx.Err())
}

// enqueueLate adds the tasks that come late.
func enqueueLate(ctx context.Context, c Contestant, job Job) error {
	late := slices.DeleteFunc(slices.Clone(job.Scenario.Tasks), func(t Task) bool { return !t.Late })
	if len(late) == 0 {
		return nil
	}
	if _, err := await(ctx, time.After(settled)); err != nil {
		return err
	}
	return enqueue(ctx, job, c.InOrder, late)
}

// vanished returns how many tasks were not done and are nowhere any more. Those that were broken off at the end may have
// been done without being counted: they are at most as many as there are slots, and only in runs that did not finish.
func vanished(job Job, r Result) (int, error) {
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: job.Addr})
	defer inspector.Close()
	queues, err := inspector.Queues()
	if err != nil {
		return 0, err
	}
	left := 0
	for _, queue := range queues {
		info, err := inspector.GetQueueInfo(queue)
		if err != nil {
			return 0, fmt.Errorf("look at queue %s: %w", queue, err)
		}
		left += info.Size
	}
	if !r.Finished {
		return max(0, r.Tasks-r.Done-left-Slots), nil
	}
	return max(0, r.Tasks-r.Done-left), nil
}
