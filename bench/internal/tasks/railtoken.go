package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// Railtoken is package worker with its defaults: a task in conflict is parked and woken when the key is free.
var Railtoken = Contestant{
	Name: "railtoken", Title: "package worker, default strategy", Locks: true, Parks: true,
	Start: func(ctx context.Context, job Job) (func() error, error) { return startRailtoken(ctx, job, nil) },
}

// RailtokenWait waits in the slot for up to a second before it parks.
var RailtokenWait = Contestant{
	Name: "railtoken wait", Title: "package worker, Wait{}.Then(Requeue{})", Locks: true, Parks: true,
	Start: func(ctx context.Context, job Job) (func() error, error) {
		return startRailtoken(ctx, job, middleware.Wait{}.Then(middleware.Requeue{}))
	},
}

func startRailtoken(ctx context.Context, job Job, strategy middleware.Strategy) (stop func() error, err error) {
	running, end := context.WithCancelCause(context.Background())
	w, err := worker.New(worker.Config{
		Redis: worker.Redis{Addr: job.Addr}, Queues: job.Scenario.weights(), Concurrency: Slots, Strategy: strategy,
		ShutdownTimeout: shutdownTimeout, Observer: middleware.ObserverFunc(job.observe),
		ErrorHandler: asynq.ErrorHandlerFunc(job.failed),
	})
	if err != nil {
		end(nil)
		return nil, err
	}
	handler := worker.Handler[payload]{
		Keys: func(p payload) []string { return []string{p.Key} },
		Run: func(ctx context.Context, p payload) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			defer context.AfterFunc(running, func() { cancel(errStopped) })()
			return job.Tally.Work(ctx, p.N)
		},
	}
	for _, kind := range job.Scenario.Types() {
		err = errors.Join(err, worker.Handle(w, kind, handler))
	}
	if err == nil {
		err = w.Start(ctx)
	}
	if err != nil {
		end(nil)
		return nil, errors.Join(err, w.Shutdown())
	}
	return func() error {
		end(errStopped)
		return w.Shutdown()
	}, nil
}

// observe counts the runs: each ends in conflict, or has acquired the key.
func (j Job) observe(_ context.Context, e middleware.Event) {
	if e.Kind != middleware.Acquired && e.Kind != middleware.Ended {
		return
	}
	n, err := strconv.Atoi(e.Task.ID)
	if err != nil {
		j.Tally.Fault(err)
		return
	}
	j.Tally.Run(n)
	if e.Kind == middleware.Acquired {
		return
	}
	conflict, ok := errors.AsType[*middleware.ConflictError](e.Err)
	switch {
	case !ok:
		j.Tally.Fault(e.Err)
	case conflict.Outcome == middleware.Parked || conflict.Outcome == middleware.MovedAway:
		j.Tally.Parked()
	default:
		j.Tally.Lost(n)
	}
}

// enqueue adds the tasks, in their order, with their places as their IDs.
func enqueue(ctx context.Context, job Job) (err error) {
	client, err := worker.NewClient(worker.Redis{Addr: job.Addr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for _, t := range job.Scenario.Tasks {
		data, err := json.Marshal(payload{N: t.N, Key: t.Key})
		if err != nil {
			return err
		}
		_, err = client.EnqueueRaw(ctx, t.Type, data, nil,
			asynq.Queue(t.Queue), asynq.TaskID(strconv.Itoa(t.N)), asynq.MaxRetry(job.Retries))
		if err != nil {
			return err
		}
	}
	return nil
}
