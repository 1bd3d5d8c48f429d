package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

const (
	producers       = 4 // goroutines that enqueue
	auditRetries    = 5
	allocateRetries = 5
	cancelRetries   = 5
)

// newClient returns a client for the tasks of a run. With lanes it records their keys, which decide on the lane of a task.
func newClient(at worker.Redis, run runID) (*worker.Client, error) {
	if at.Lanes == 0 {
		return worker.NewClient(at)
	}
	h := &handlers{run: run}
	return worker.NewClientWith(at, attach.ProducerOptions{Keys: map[string]middleware.KeyFunc{
		auditType:    middleware.PayloadKeys(h.auditKeys),
		allocateType: middleware.PayloadKeys(h.allocateKeys),
		cancelType:   middleware.PayloadKeys(h.cancelKeys),
	}})
}

// producer enqueues the tasks of orders.
type producer struct {
	client *worker.Client
	run    runID
	// singleTry enqueues every n-th allocation without any retry, so that it meets its conflicts on its last attempt, where
	// asynq by itself would archive it. None if 0.
	singleTry int
	cancel    int // every n-th order is cancelled

	enqueued atomic.Int64
	already  atomic.Int64 // tasks that were in their queue before
}

// enqueue adds the tasks of each order, and returns when all are there, ctx has ended, or the first one failed.
func (p *producer) enqueue(ctx context.Context, orders []order) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range producers {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(orders) {
					return
				}
				if err := p.enqueueOrder(ctx, i, orders[i]); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// enqueueOrder adds the tasks of an order, one right after the other, so that they compete for the order.
func (p *producer) enqueueOrder(ctx context.Context, i int, o order) error {
	retries := allocateRetries
	if p.singleTry > 0 && i%p.singleTry == 0 {
		retries = 0
	}
	errs := []error{
		p.add(ctx, auditType, auditPayload{OrderID: o.ID, PurchasedAt: o.PurchasedAt, Status: o.Status, ValueCents: o.ValueCents},
			asynq.Queue(p.run.auditQueue()), asynq.TaskID(auditID(o.ID)), asynq.MaxRetry(auditRetries)),
		p.add(ctx, allocateType, allocatePayload{OrderID: o.ID, Parts: o.parts()},
			asynq.Queue(p.run.allocateQueue()), asynq.TaskID(allocateID(o.ID)), asynq.MaxRetry(retries)),
	}
	if isCancelled(i, p.cancel) {
		errs = append(errs, p.add(ctx, cancelType, cancelPayload{OrderID: o.ID},
			asynq.Queue(p.run.cancelQueue()), asynq.TaskID(cancelID(o.ID)), asynq.MaxRetry(cancelRetries)))
	}
	return errors.Join(errs...)
}

func (p *producer) add(ctx context.Context, taskType string, payload any, opts ...asynq.Option) error {
	_, err := p.client.Enqueue(ctx, taskType, payload, opts...)
	switch {
	case errors.Is(err, asynq.ErrTaskIDConflict): // an earlier producer of the run was here, or the reply got lost
		p.already.Add(1)
		return nil
	case err != nil:
		return fmt.Errorf("orders: %w", err)
	}
	p.enqueued.Add(1)
	return nil
}
