package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// crew is the workers of this process, with what they share.
type crew struct {
	handlers  *handlers
	tracker   *tracker
	conflicts *conflicts
	workers   []*worker.Worker

	ends atomic.Int64
	goal int64
	full chan struct{} // closed when ends reaches goal
}

func newCrew(id runID, s *store, work span, noLock bool) *crew {
	c := &crew{tracker: newTracker(), full: make(chan struct{})}
	c.conflicts = newConflicts(c.ended)
	c.handlers = &handlers{run: id, store: s, tracker: c.tracker, work: work, noLock: noLock, done: c.ended}
	return c
}

// after returns a channel that is closed when n tasks have ended in this process. Call it before start.
func (c *crew) after(n int) <-chan struct{} {
	c.goal = int64(n)
	return c.full
}

func (c *crew) ended() {
	if c.ends.Add(1) == c.goal {
		close(c.full)
	}
}

// start makes and starts n workers. An Observer of cfg gets all events, too. After an error, none runs.
func (c *crew) start(ctx context.Context, cfg worker.Config, n int) error {
	observe := cfg.Observer
	cfg.Observer = func(ctx context.Context, e middleware.Event) {
		c.conflicts.Observe(ctx, e)
		if observe != nil {
			observe(ctx, e)
		}
	}
	for i := range n {
		w, err := worker.New(cfg)
		if err == nil {
			c.workers = append(c.workers, w)
			err = c.handlers.register(w)
		}
		if err == nil {
			err = w.Start(ctx)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("orders: start worker %d: %w", i+1, err), c.shutdown())
		}
	}
	return nil
}

// shutdown ends all workers at the same time.
func (c *crew) shutdown() error {
	var all sync.WaitGroup
	errs := make([]error, len(c.workers))
	for i, w := range c.workers {
		all.Go(func() { errs[i] = w.Shutdown() })
	}
	all.Wait()
	return errors.Join(errs...)
}
