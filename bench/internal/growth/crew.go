package growth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/usage"
	"github.com/railtoken/railtoken/worker"
)

const (
	noopType = "noop"
	queue    = "default"
)

// noop is a task that does nothing.
type noop struct {
	Key string `json:"key"`
}

// crew is a worker that does a slice of its tasks, which do nothing, at a time. It rests in between.
type crew struct {
	tasks  int // of a slice
	gate   *gate
	meter  usage.Meter
	worker *worker.Worker
}

// startCrew enqueues tasks for so many slices and one to warm up, whose keys follow one another, and starts a worker with
// the rest of a configuration.
func startCrew(
	ctx context.Context, at *server.Server, cfg worker.Config, keys []string, slots, slices, tasks int,
) (*crew, error) {
	if err := enqueue(ctx, at, keys, (1+slices)*tasks+slots); err != nil {
		return nil, err
	}
	runtime.GC() // the garbage of the enqueueing
	inspector := asynq.NewInspectorFromRedisClient(at.Probe())
	if err := inspector.PauseQueue(queue); err != nil { // until the worker is there
		return nil, err
	}
	c := &crew{tasks: tasks, gate: newGate(tasks), meter: usage.Meter{Servers: []*server.Server{at}}}
	var err error
	cfg.Redis, cfg.Queues, cfg.Concurrency = worker.Redis{Addr: at.Addr()}, map[string]int{queue: 1}, slots
	cfg.ShutdownTimeout, cfg.Logger = time.Second, slog.New(slog.DiscardHandler)
	c.worker, err = worker.New(cfg)
	if err != nil {
		return nil, err
	}
	err = worker.Handle(c.worker, noopType, worker.Handler[noop]{
		Keys: func(n noop) []string { return []string{n.Key} },
		Run: func(context.Context, noop) error {
			c.gate.come()
			return nil
		},
	})
	if err == nil {
		err = c.worker.Start(ctx)
	}
	if err == nil {
		learned := server.LearnFrom(ctx, at)
		err = inspector.UnpauseQueue(queue)
		if err == nil {
			err = c.gate.pass(ctx, tasks)
		}
		var failed error
		c.meter.Sent, failed = learned()
		err = errors.Join(err, failed)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func enqueue(ctx context.Context, at *server.Server, keys []string, tasks int) (err error) {
	client, err := worker.NewClient(worker.Redis{Addr: at.Addr()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for i := range tasks {
		if _, err := client.Enqueue(ctx, noopType, noop{keys[i%len(keys)]}, asynq.Queue(queue)); err != nil {
			return err
		}
	}
	return nil
}

// slice lets the worker do some tasks. Those in flight at the beginning and at the end make up for each other.
func (c *crew) slice(ctx context.Context) (usage.Cost, error) {
	before, err := c.meter.Read(ctx)
	if err == nil {
		err = c.gate.pass(ctx, c.tasks)
	}
	if err != nil {
		return usage.Cost{}, err
	}
	after, err := c.meter.Read(ctx)
	return after.Since(before, c.tasks), err
}

// close ends the worker, also one that rests.
func (c *crew) close() error {
	c.gate.open()
	return c.worker.Shutdown()
}

// gate lets tasks pass, so many at a time.
type gate struct {
	permits chan struct{} // closed when all may pass
	left    atomic.Int64  // tasks that may still pass
	passed  chan struct{} // when none is left
}

func newGate(most int) *gate {
	return &gate{permits: make(chan struct{}, most), passed: make(chan struct{}, 1)}
}

// come returns when the task may pass.
func (g *gate) come() {
	if _, ok := <-g.permits; ok && g.left.Add(-1) == 0 {
		g.passed <- struct{}{}
	}
}

// pass lets n more pass, as many at the most as the gate was made for, and returns when they have.
func (g *gate) pass(ctx context.Context, n int) error {
	g.left.Store(int64(n))
	for range n {
		g.permits <- struct{}{}
	}
	select {
	case <-g.passed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d tasks were not done: %w", g.left.Load(), n, context.Cause(ctx))
	}
}

// open lets all pass.
func (g *gate) open() { close(g.permits) }
