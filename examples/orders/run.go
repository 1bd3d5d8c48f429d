package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/railtoken/railtoken/worker"
)

// run is one run of the whole example: workers, producers, and the check at the end.
type run struct {
	ID        runID
	Config    worker.Config // of each worker
	Workers   int
	Orders    []order
	Work      span
	NoLock    bool
	SingleTry int
	Cancel    int // every n-th order is cancelled
	DB        string
	Progress  progress
}

// errTimeout is the cause if a run takes too long.
var errTimeout = errors.New("orders: the run took longer than -timeout")

// checkTimeout limits the check after a run that was ended early.
const checkTimeout = time.Minute

// do runs everything until each task has ended or ctx ends, deletes the run's queues, and returns the report, which covers the
// tasks so far if the run was ended early. It returns an error if nothing can be reported.
func (r *run) do(ctx context.Context) (rep *report, err error) {
	store, err := openStore(ctx, r.DB, r.ID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.close()) }()
	client, err := newClient(r.Config.Redis, r.ID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	conn := connect(r.Config.Redis)
	defer func() { err = errors.Join(err, conn.Close()) }()
	archives := newArchives(conn, r.ID)

	c := newCrew(r.ID, store, r.Work, r.NoLock)
	total := tasksOf(len(r.Orders), r.Cancel)
	nudge := c.after(total)
	if err := c.start(ctx, r.Config, r.Workers); err != nil {
		return nil, err
	}
	began := time.Now()
	producer := &producer{client: client, run: r.ID, singleTry: r.SingleTry, cancel: r.Cancel}
	ended := r.produceAndAwait(ctx, producer, func(ctx context.Context) error {
		return await(ctx, total, nudge, r.Progress, func() (int, error) { return endedTasks(ctx, store, archives, total) })
	})
	duration := time.Since(began)
	r.Progress.close()
	if err := c.shutdown(); err != nil {
		return nil, err
	}

	// Check and clean up even after Ctrl-C.
	checkCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	enqueued := int(producer.enqueued.Load() + producer.already.Load())
	rep, err = r.check(checkCtx, store, archives, ended, enqueued == total)
	if err != nil {
		return nil, errors.Join(ended, err)
	}
	rep.Enqueued, rep.Duration, rep.Elsewhere, rep.NoLock = enqueued, duration, r.Workers == 0, r.NoLock
	rep.add(c)
	if ended != nil && r.Workers == 0 {
		return rep, nil // the -serve processes are still at work on the queues
	}
	return rep, archives.clear(checkCtx)
}

// produceAndAwait enqueues the tasks and waits for their end. It returns nil when every task has ended, else why the run was
// ended early.
func (r *run) produceAndAwait(ctx context.Context, p *producer, wait func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var producing sync.WaitGroup
	producing.Go(func() {
		if err := p.enqueue(ctx, r.Orders); err != nil {
			cancel(err)
		}
	})
	err := wait(ctx)
	cancel(err) // everything is enqueued, unless the wait has failed
	producing.Wait()
	return err
}

// endedTasks returns how many tasks have ended: they have had their effect or are archived. Below total it may count some
// twice: asynq archives a task on its last attempt whose effect is in the ledger if its acknowledgement does not arrive.
func endedTasks(ctx context.Context, s *store, a *archives, total int) (int, error) {
	done, err := s.finished(ctx)
	if err != nil {
		return 0, err
	}
	archived, err := a.count()
	if err != nil || done+archived < total {
		return done + archived, err
	}
	entries, err := s.ledger(ctx)
	if err != nil {
		return 0, err
	}
	found, err := a.read()
	if err != nil {
		return 0, err
	}
	ended := map[string]bool{}
	for _, e := range entries {
		ended[e.TaskID] = true
	}
	for id := range found.Refused {
		ended[id] = true
	}
	for id := range found.Failed {
		ended[id] = true
	}
	return len(ended), nil
}
