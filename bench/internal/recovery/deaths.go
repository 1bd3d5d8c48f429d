package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/child"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/internal/testing/process"
)

// ChildArgument is the first argument of a run of the program that must call [Serve].
const ChildArgument = "worker-child"

const (
	deathRounds = 2 // because asynq's recoverer takes up to two minutes
	deathBound  = 4 * time.Minute
	// reports is how many reports both workers make before one dies, so that they know each other.
	reports = 2
)

// job asks a process to take tasks and keep them.
type job struct{ Name, Addr string }

// Serve takes tasks as the request on in asks for, and says a line for each, until in ends or it is killed. It never
// completes one.
func Serve(in io.Reader, out io.Writer) error {
	return child.Serve(in, out, func(_ context.Context, j job, say func(string)) (func() error, error) {
		c, err := named(j.Name)
		if err != nil {
			return nil, err
		}
		client := clientOf(j.Addr)()
		stop, err := c.start(client, func(ctx context.Context, _ *asynq.Task) error {
			say("began")
			<-ctx.Done()
			return ctx.Err()
		})
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		return func() error { return errors.Join(stop(), client.Close()) }, nil
	})
}

// death is how a worker ends, and how many reports it makes before.
type death struct {
	reports int
	end     func(worker *child.Child) error
}

var killed = death{reports, func(worker *child.Child) error {
	worker.Kill()
	return nil
}}

// deaths measures when the tasks of a worker that was killed run on another one. All contestants are measured at the
// same time, because they do nothing but wait.
func deaths(ctx context.Context, env *measure.Env) error {
	return env.Measure(ctx, measure.Contest{
		Group: Group, Name: "recovery-worker", Rows: names(contestants),
		Title: fmt.Sprintf("seconds from the death of a worker, which is killed with %d tasks, to their runs on another worker", slots),
		Measure: func(ctx context.Context, t *results.Table) error {
			if env.Scale < 100 {
				for _, row := range t.Rows {
					row.Note = "left out: it takes minutes, whatever the scale"
				}
				return nil
			}
			for range min(env.Rounds, deathRounds) {
				if err := killed.round(ctx, env, t); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// round measures each contestant once.
func (d death) round(ctx context.Context, env *measure.Env, t *results.Table) error {
	ctx, cancel := context.WithTimeout(ctx, deathBound)
	defer cancel()
	errs, runs := make([]error, len(contestants)), make([][]time.Duration, len(contestants))
	var all sync.WaitGroup
	for i, c := range contestants {
		all.Go(func() { runs[i], errs[i] = d.measure(ctx, env.Dir, c) })
	}
	all.Wait()
	for i, c := range contestants {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s: %w", c.name, errs[i])
			continue
		}
		env.Report("recovery-worker, %s: the first task runs again after %v", c.name, runs[i][0].Round(time.Millisecond))
		t.Add(c.name, "first s", runs[i][0].Seconds())
		t.Add(c.name, "all s", runs[i][len(runs[i])-1].Seconds())
	}
	return errors.Join(errs...)
}

// measure returns when the tasks of a worker run again, counted from its death.
func (d death) measure(ctx context.Context, dir string, c contestant) (runs []time.Duration, err error) {
	s, err := server.Start(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer s.Kill()
	if err := c.enqueue(ctx, s.Addr(), slots); err != nil {
		return nil, err
	}
	victim, err := child.Start(ChildArgument, job{c.name, s.Addr()})
	if err != nil {
		return nil, err
	}
	defer victim.Kill()
	for range slots {
		if _, err := victim.Line(); err != nil {
			return nil, err
		}
	}
	client := clientOf(s.Addr())()
	defer func() { _ = client.Close() }()
	began := make(chan time.Time, slots)
	stop, err := c.start(client, func(ctx context.Context, _ *asynq.Task) error {
		select {
		case began <- time.Now():
		case <-ctx.Done():
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := heard(ctx, s.Probe(), d.reports); err != nil {
		return nil, err
	}
	died := time.Now()
	if err := d.end(victim); err != nil {
		return nil, err
	}
	for range slots {
		select {
		case at := <-began:
			runs = append(runs, at.Sub(died))
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d tasks run again: %w", len(runs), slots, context.Cause(ctx))
		}
	}
	return runs, nil
}

// heard returns when two workers have reported so often since their first reports.
func heard(ctx context.Context, client *redis.Client, times int) error {
	last, reported := map[string]float64{}, map[string]int{}
	return process.Poll(ctx, nil, func() error {
		signs, err := client.ZRangeWithScores(ctx, "asynq:servers", 0, -1).Result()
		if err != nil {
			return err
		}
		often := 0
		for _, sign := range signs {
			name := fmt.Sprint(sign.Member)
			if before, known := last[name]; known && before != sign.Score {
				reported[name]++
			}
			last[name] = sign.Score
			if reported[name] >= times {
				often++
			}
		}
		if often < 2 {
			return fmt.Errorf("%d of 2 workers have reported %d times", often, times)
		}
		return nil
	})
}
