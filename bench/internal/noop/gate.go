package noop

import (
	"context"
	"fmt"
	"sync"
)

// gate lets tasks pass, so many at a time.
type gate struct {
	mu     sync.Mutex
	more   sync.Cond
	left   int // tasks that may still pass
	isOpen bool
	passed chan struct{} // when none is left
}

func newGate() *gate {
	g := &gate{passed: make(chan struct{}, 1)}
	g.more.L = &g.mu
	return g
}

// come returns when the task may pass.
func (g *gate) come() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.left == 0 && !g.isOpen {
		g.more.Wait()
	}
	if g.isOpen {
		return
	}
	g.left--
	if g.left == 0 {
		g.passed <- struct{}{}
	}
}

// pass lets n more pass, and returns when they have.
func (g *gate) pass(ctx context.Context, n int) error {
	g.mu.Lock()
	g.left = n
	g.mu.Unlock()
	g.more.Broadcast()
	select {
	case <-g.passed:
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		return fmt.Errorf("%d of %d tasks were not done: %w", g.left, n, context.Cause(ctx))
	}
}

// open lets all pass.
func (g *gate) open() {
	g.mu.Lock()
	g.isOpen = true
	g.mu.Unlock()
	g.more.Broadcast()
}
