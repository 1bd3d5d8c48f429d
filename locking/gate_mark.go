package locking

import (
	"context"
	"errors"
	"time"
)

// markSlack is how much less than asked for the interest in a release may last.
const markSlack = time.Minute

// mustMark reports whether the servers must be told that somebody asks for the release of a key that is held here to be announced: who
// holds it by the time at which the one who asks comes for it may be another process. The servers are told once for many who ask.
func (g *Gate) mustMark(h *hold, key string, interest time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if h.freed || h.marked[key].Sub(now) >= interest-min(interest/2, markSlack) {
		return false
	}
	if h.marked == nil {
		h.marked = map[string]time.Time{}
	}
	h.marked[key] = now.Add(interest)
	return true
}

// mark tells the servers, by an attempt that they refuse. It reports whether they did not refuse it: then the key has become free meanwhile.
func (g *Gate) mark(ctx context.Context, h *hold, key string, opts Options) bool {
	opts.Block = 0
	lease, err := g.inner.Acquire(ctx, []string{key}, opts.withDefaults())
	if err == nil {
		_ = lease.Release(ctx)
		return true
	}
	if !errors.Is(err, ErrHeld) {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(h.marked, key)
	}
	return false
}
