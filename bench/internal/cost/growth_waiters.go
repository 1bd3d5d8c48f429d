package cost

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/workers"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

const (
	lifeType  = "life"
	lifeKey   = "order-000001"
	lifeSlots = 4
	lifeDelay = 10 * time.Minute
)

// overWaiters is what a task's life costs while others wait.
func overWaiters(name, title string, order middleware.Order, depths []int, lives int) series {
	open := func(ctx context.Context, at *server.Server, i int) (measure.Load, error) {
		return startChain(ctx, at, order, depths[i], depths[i]+(1+parts)*lives)
	}
	return series{name, title, names(depths), parts, lives, open}
}

// chain is tasks of one key. Each enqueues another one, which is parked as it is fetched, and ends; then the one that has
// waited longest is woken. It rests, with a task that runs, unless some lives are asked for.
type chain struct {
	order  middleware.Order
	client *worker.Client
	stop   func() error  // ends the worker
	parked chan struct{} // a value for each task that has parked
	asked  chan int      // so many lives
	lived  chan error    // when they have passed
	over   chan struct{}

	mu     sync.Mutex // of the one task that runs
	queued int        // the next one to be enqueued
	left   int        // lives that are asked for
}

// startChain enqueues tasks and lets so many wait for the first of them. At most n come after that one.
func startChain(ctx context.Context, at *server.Server, order middleware.Order, depth, n int) (measure.Load, error) {
	c := &chain{
		order: order, parked: make(chan struct{}, 2*(1+n)),
		asked: make(chan int, 1), lived: make(chan error, 1), over: make(chan struct{}),
	}
	var err error
	if c.client, err = worker.NewClient(worker.Redis{Addr: at.Addr()}); err != nil {
		return nil, err
	}
	for range 1 + depth {
		err = errors.Join(err, c.enqueue(ctx))
	}
	if err == nil {
		c.stop, err = c.startWorker(ctx, at)
	}
	if err != nil {
		return nil, errors.Join(err, c.client.Close())
	}
	for range depth {
		select {
		case <-c.parked:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), c.Close())
		}
	}
	return c, nil
}

func (c *chain) startWorker(ctx context.Context, at *server.Server) (stop func() error, err error) {
	return workers.Railtoken(ctx, worker.Config{
		Redis: worker.Redis{Addr: at.Addr()}, Concurrency: lifeSlots, Observer: c.observe,
		Strategy: middleware.Requeue{Order: c.order, Delay: lifeDelay},
	}, worker.Handler[int]{
		Keys: func(int) []string { return []string{lifeKey} },
		Run:  func(context.Context, int) error { return c.live(ctx) },
	}, lifeType)
}

// Close lets all tasks go that run.
func (c *chain) Close() error {
	close(c.over)
	return errors.Join(c.stop(), c.client.Close())
}

// Pass lets the tasks live on for so many lives.
func (c *chain) Pass(ctx context.Context, lives int) error {
	c.asked <- lives // the task that rests, or that comes to run, takes it
	select {
	case err := <-c.lived:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *chain) enqueue(ctx context.Context) (err error) {
	if c.order == middleware.BestEffort {
		_, err = c.client.Enqueue(ctx, lifeType, c.queued)
	} else {
		_, err = c.client.EnqueueInOrder(ctx, lifeKey, lifeType, c.queued)
	}
	c.queued++
	return err
}

func (c *chain) observe(_ context.Context, e middleware.Event) {
	if e.Kind == middleware.Parked {
		c.parked <- struct{}{}
	}
}

// live is the handler. The context is that of the measurement.
func (c *chain) live(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		select {
		case c.left = <-c.asked:
		case <-c.over:
			return nil
		}
	}
	err := c.enqueue(ctx) // the acknowledgement of this task fetches and parks it
	c.left--
	if c.left > 0 && err == nil {
		return nil
	}
	c.left = 0
	c.lived <- err
	return nil
}
