package cost

import (
	"context"
	"fmt"
	"runtime"
	"sync"
)

// emptyTask is the type of all tasks.
const emptyTask = "noop"

// crew is asynq servers that do as many of their tasks as they are asked to. They rest in between.
type crew struct {
	stop func() error

	mu     sync.Mutex
	more   sync.Cond
	left   int // tasks that may still pass
	ended  bool
	passed chan struct{} // when none is left
}

// newCrew starts servers for tasks that have been enqueued, each of which must call work.
func newCrew(start func(work func()) (stop func() error, err error)) (*crew, error) {
	runtime.GC() // the garbage of the enqueueing
	c := &crew{passed: make(chan struct{}, 1)}
	c.more.L = &c.mu
	var err error
	c.stop, err = start(c.work)
	return c, err
}

// work returns when the task may pass.
func (c *crew) work() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.left == 0 && !c.ended {
		c.more.Wait()
	}
	if c.ended {
		return
	}
	c.left--
	if c.left == 0 {
		c.passed <- struct{}{}
	}
}

// Pass lets n more tasks pass, and returns when they have. Those in flight at the beginning and at the end make up for
// each other.
func (c *crew) Pass(ctx context.Context, n int) error {
	c.mu.Lock()
	c.left = n
	c.mu.Unlock()
	c.more.Broadcast()
	select {
	case <-c.passed:
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		return fmt.Errorf("%d of %d tasks were not done: %w", c.left, n, context.Cause(ctx))
	}
}

// Close ends the servers, also those that rest.
func (c *crew) Close() error {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.more.Broadcast()
	return c.stop()
}
