package main

import (
	"context"
	"errors"
	"fmt"
)

// serve works on the tasks of a run until it is told to stop, then prints what this process has seen. Several processes may
// serve one run. If one dies, only its part of the statistics is lost.
func (p *program) serve(ctx context.Context) (status int, err error) {
	cfg, err := p.config(p.env, p.Run)
	if err != nil {
		return exitUsage, err
	}
	store, err := openStore(ctx, p.DB, p.Run)
	if err != nil {
		return exitWrong, err
	}
	defer func() { err = errors.Join(err, store.close()) }()
	var m *metrics
	if p.Listen != "" {
		if m, err = newMetrics(cfg); err != nil {
			return exitWrong, err
		}
		defer func() { err = errors.Join(err, m.close()) }()
		cfg.Observer = m.Observe
	}
	c := newCrew(p.Run, store, p.Work, p.NoLock)
	if err := c.start(ctx, cfg, p.Workers); err != nil {
		return exitWrong, err
	}
	if m != nil {
		stop, err := serveHealth(ctx, p.Listen, c.workers[0], m.handler())
		if err != nil {
			return exitWrong, errors.Join(err, c.shutdown())
		}
		defer stop()
	}
	fmt.Fprintf(p.out, "serving run %s, strategy %s, %d slots, Redis %s\n", p.Run, strategyName(cfg.Strategy), p.Workers*cfg.Concurrency, cfg.Redis)
	<-ctx.Done()
	if err := c.shutdown(); err != nil {
		return exitWrong, err
	}
	rep := &report{}
	rep.add(c)
	fmt.Fprintf(p.out, "served %d runs of handlers: %d effects new, %d found, %d fenced; conflicts: %d waited in the slot, %d parked, %d failed fast; %d overlaps\n",
		rep.Seen.Runs, c.ends.Load()-rep.Again-int64(rep.Met.FailFast+rep.Met.Bound), rep.Again, rep.Fenced,
		rep.Met.InSlot, rep.Met.Parked, rep.Met.FailFast, rep.Overlaps)
	if p.given["timeline"] {
		err = p.writeTimeline(rep, &run{ID: p.Run, Config: cfg, NoLock: p.NoLock, Workers: p.Workers})
	}
	if rep.Overlaps > 0 {
		return exitWrong, err
	}
	return exitOK, err
}

// produce enqueues the tasks of a run for the processes that serve it.
func (p *program) produce(ctx context.Context) (status int, err error) {
	orders, source, err := p.load()
	if err != nil {
		return exitWrong, err
	}
	client, err := newClient(p.env.Redis, p.Run)
	if err != nil {
		return exitUsage, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	producer := &producer{client: client, run: p.Run, singleTry: p.SingleTry, cancel: p.Cancel}
	ended := producer.enqueue(ctx, orders)
	fmt.Fprintf(p.out, "%d orders (%s): %d tasks enqueued for run %s, %d were there already\n",
		len(orders), source, producer.enqueued.Load(), p.Run, producer.already.Load())
	switch {
	case errors.Is(ended, context.Canceled):
		return exitInterrupted, nil
	case ended != nil:
		return exitWrong, ended
	default:
		return exitOK, nil
	}
}
