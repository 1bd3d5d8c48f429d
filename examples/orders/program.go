package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/railtoken/railtoken/worker"
)

// program is one call of the command.
type program struct {
	options
	out, errOut io.Writer

	env      worker.Config
	embedded bool
	closers  []func()
}

// close releases what the program has opened, the last first.
func (p *program) close() {
	for _, c := range slices.Backward(p.closers) {
		c()
	}
}

// run does what the options say and returns the exit status.
func (p *program) run(ctx context.Context) (int, error) {
	if p.Health != "" {
		return askHealth(ctx, p.Health, p.out)
	}
	env, embedded, closeRedis, err := environment(!p.Serve && !p.Produce && p.Workers > 0)
	p.closers = append(p.closers, closeRedis)
	if err != nil {
		return exitUsage, err
	}
	p.env, p.embedded = env, embedded
	if p.Verbose || p.Serve {
		p.env.Logger = slog.New(slog.NewTextHandler(p.errOut, nil))
	}
	if !p.Serve {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.Timeout, errTimeout)
		defer cancel()
	}
	switch {
	case p.Serve:
		return p.serve(ctx)
	case p.Produce:
		return p.produce(ctx)
	case p.Demo:
		return p.demo(ctx)
	default:
		return p.once(ctx)
	}
}

// once makes one run and prints its report.
func (p *program) once(ctx context.Context) (int, error) {
	orders, source, err := p.load()
	if err != nil {
		return exitWrong, err
	}
	r, err := p.prepare(orders, p.NoLock)
	if err != nil {
		return exitWrong, err
	}
	fmt.Fprintf(p.out, "%d orders (%s), %d tasks.\n%s\n\n", len(orders), source, tasksOf(len(orders), p.Cancel), p.describe(r))
	if p.embedded && len(orders) > mostEmbedded {
		fmt.Fprintf(p.out, "The embedded Redis gets slow with so many tasks: this takes minutes. Name a Redis by RAILTOKEN_REDIS_ADDR, and it takes seconds.\n\n")
	}
	rep, err := p.do(ctx, r)
	if err != nil {
		return exitWrong, err
	}
	rep.print(p.out)
	return rep.status(), p.writeTimeline(rep, r)
}

// prepare returns a run.
func (p *program) prepare(orders []order, noLock bool) (*run, error) {
	id := p.Run
	if id == "" {
		id = newRunID()
	}
	cfg, err := p.config(p.env, id)
	if err != nil {
		return nil, err
	}
	if strategyName(cfg.Strategy) == "failfast" && len(orders) > mostArchived {
		return nil, fmt.Errorf("orders: %d orders are too many for -strategy failfast: asynq keeps %d refused tasks of a queue and drops the rest, "+
			"so that their reasons could not be checked", len(orders), mostArchived)
	}
	r := &run{
		ID: id, Config: cfg, Workers: p.Workers, Orders: orders, Work: p.Work, NoLock: noLock, SingleTry: p.SingleTry, Cancel: p.Cancel, DB: p.DB,
		Progress: newProgress(p.errOut, tasksOf(len(orders), p.Cancel)),
	}
	if r.DB == "" {
		dir, err := os.MkdirTemp("", "railtoken-orders-")
		if err != nil {
			return nil, fmt.Errorf("orders: make a place for the database: %w", err)
		}
		p.closers = append(p.closers, func() { _ = os.RemoveAll(dir) }) // it is a temporary file
		r.DB = filepath.Join(dir, "orders.db")
	}
	return r, nil
}

// do makes the run. A run that was ended by a signal is a result, not an error.
func (p *program) do(ctx context.Context, r *run) (*report, error) {
	rep, err := r.do(ctx)
	if errors.Is(err, context.Canceled) && rep == nil {
		return nil, errors.New("orders: stopped before the run began")
	}
	return rep, err
}

// describe says in one line how a run works.
func (p *program) describe(r *run) string {
	how := "strategy " + strategyName(r.Config.Strategy)
	if r.NoLock {
		how = "NO LOCKS"
	}
	return fmt.Sprintf("%s; %d workers with %d slots each; a task works %v to %v; Redis: %s.",
		how, r.Workers, r.Config.Concurrency, r.Work.Min, r.Work.Max, p.redisName())
}

func (p *program) redisName() string {
	if p.embedded {
		return "embedded in this process, because RAILTOKEN_REDIS_ADDR is not set"
	}
	return p.env.Redis.String()
}

// status returns the exit status for a report.
func (r *report) status() int {
	if len(r.faults()) > 0 {
		return exitWrong
	}
	return r.stopStatus()
}

// stopStatus returns the exit status for the way in which the run ended, whatever was found.
func (r *report) stopStatus() int {
	switch {
	case r.Stopped == nil:
		return exitOK
	case errors.Is(r.Stopped, context.Canceled):
		return exitInterrupted
	default:
		return exitWrong
	}
}
