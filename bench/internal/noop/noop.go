// Package noop has workers do tasks that do nothing, so that what remains is what the tasks cost.
package noop

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/usage"
	"github.com/railtoken/railtoken/worker"
)

// Type is that of all tasks.
const Type = "noop"

// Job is some tasks and the workers that do them.
type Job struct {
	Redis worker.Redis
	// Queues and Keys are those of the tasks, which have them in turn.
	Queues, Keys []string
	Tasks        int
	// Workers have connections of their own, as they would in processes of their own; Slots and Fetchers are those of each.
	Workers, Slots, Fetchers int
}

// payload is what a task carries.
type payload struct {
	Key string `json:"key"`
}

// Crew is the workers of a job. They rest unless they are told to do some of its tasks.
type Crew struct {
	job   Job
	count *counter
	meter usage.Meter
	stop  func() error
}

// Start starts the workers, which do the first tasks that were enqueued, so many, to warm up: meanwhile it watches learn to tell the commands of
// clients from others. None are counted when learn is nil. The meter is for what follows.
func (j Job) Start(ctx context.Context, meter usage.Meter, learn *server.Server, warm int) (*Crew, error) {
	runtime.GC() // the garbage of the enqueueing
	goOn, err := j.hold()
	if err != nil {
		return nil, err
	}
	c := &Crew{job: j, count: newCounter(), meter: meter}
	if c.stop, err = j.start(ctx, c.count); err != nil {
		return nil, errors.Join(err, goOn())
	}
	learning := learnFrom(ctx, learn)
	err = goOn()
	if err == nil {
		_, err = c.Do(ctx, warm)
	}
	sent, failed := learning()
	if err = errors.Join(err, failed); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	c.meter.Sent = sent
	return c, nil
}

// Do lets the workers do so many tasks and returns what they have cost. There must be so many left; those that are in flight at the beginning and
// at the end make up for each other.
func (c *Crew) Do(ctx context.Context, tasks int) (usage.Cost, error) {
	before, err := c.meter.Read(ctx)
	if err == nil {
		err = c.count.pass(ctx, tasks)
	}
	if err != nil {
		return usage.Cost{}, err
	}
	after, err := c.meter.Read(ctx)
	return after.Since(before, tasks), err
}

// Stop ends the workers, also those that rest.
func (c *Crew) Stop() error {
	c.count.end()
	return c.stop()
}

// hold pauses the queues until all workers are there.
func (j Job) hold() (goOn func() error, err error) {
	addrs := j.Redis.Cluster
	if j.Redis.Addr != "" {
		addrs = []string{j.Redis.Addr}
	}
	conn := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, IsClusterMode: len(j.Redis.Cluster) > 0})
	inspector := asynq.NewInspectorFromRedisClient(conn)
	for _, name := range j.Queues {
		err = errors.Join(err, inspector.PauseQueue(name))
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return func() error {
		var err error
		for _, name := range j.Queues {
			err = errors.Join(err, inspector.UnpauseQueue(name))
		}
		return errors.Join(err, conn.Close())
	}, nil
}

// Enqueue enqueues the tasks in their order.
func (j Job) Enqueue(ctx context.Context) (err error) {
	client, err := worker.NewClient(j.Redis)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for i := range j.Tasks {
		if _, err := client.Enqueue(ctx, Type, payload{j.Keys[i%len(j.Keys)]}, asynq.Queue(j.Queues[i%len(j.Queues)])); err != nil {
			return err
		}
	}
	return nil
}

// start starts the workers.
func (j Job) start(ctx context.Context, count *counter) (stop func() error, err error) {
	var workers []*worker.Worker
	stop = func() error {
		errs := make(chan error)
		for _, w := range workers {
			go func() { errs <- w.Shutdown() }()
		}
		var err error
		for range workers {
			err = errors.Join(err, <-errs)
		}
		return err
	}
	queues := map[string]int{}
	for _, name := range j.Queues {
		queues[name] = 1
	}
	for range j.Workers {
		w, err := worker.New(worker.Config{Redis: j.Redis, Queues: queues, Concurrency: j.Slots, Fetchers: j.Fetchers, ShutdownTimeout: time.Second})
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		workers = append(workers, w)
		err = worker.Handle(w, Type, worker.Handler[payload]{
			Keys: func(p payload) []string { return []string{p.Key} },
			Run: func(context.Context, payload) error {
				count.come()
				return nil
			},
		})
		if err == nil {
			err = w.Start(ctx)
		}
		if err != nil {
			return nil, errors.Join(err, stop())
		}
	}
	return stop, nil
}

// counter lets tasks pass, so many at a time.
type counter struct {
	mu        sync.Mutex
	more      *sync.Cond // when more may pass
	came, may int
	passed    int
	over      bool
	enough    chan struct{} // when all that may pass have passed
}

func newCounter() *counter {
	c := &counter{}
	c.more = sync.NewCond(&c.mu)
	return c
}

// come returns when the task may pass.
func (c *counter) come() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.came++
	for mine := c.came; mine > c.may && !c.over; {
		c.more.Wait()
	}
	c.passed++
	if c.passed == c.may {
		close(c.enough)
	}
}

// pass lets n more pass and returns when they have.
func (c *counter) pass(ctx context.Context, n int) error {
	c.mu.Lock()
	enough := make(chan struct{})
	c.enough = enough
	c.may += n
	c.more.Broadcast()
	c.mu.Unlock()
	select {
	case <-enough:
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		return fmt.Errorf("%d of %d tasks were done: %w", c.passed, c.may, context.Cause(ctx))
	}
}

// end lets all pass.
func (c *counter) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.more.Broadcast()
}

// learnFrom begins to learn which commands clients send, and returns a function that ends it. There is nothing to learn when at is nil.
func learnFrom(ctx context.Context, at *server.Server) (end func() (*server.Sent, error)) {
	if at == nil {
		return func() (*server.Sent, error) { return nil, nil } //nolint:nilnil // nothing is counted then
	}
	return LearnFrom(ctx, at)
}

// LearnFrom begins to learn which commands clients send to a server, and returns a function that ends it.
func LearnFrom(ctx context.Context, at *server.Server) (end func() (*server.Sent, error)) {
	watching, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	var (
		sent *server.Sent
		err  error
	)
	go func() {
		defer close(over)
		sent, err = server.Learn(watching, at, time.Hour)
	}()
	return func() (*server.Sent, error) {
		cancel()
		<-over
		return sent, err
	}
}
