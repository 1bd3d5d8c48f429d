package locking

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/subscription"
)

// subscribeSlack is how much shorter than requested a subscription on the servers may be.
const subscribeSlack = time.Minute

// mustSubscribe reports whether a caller of a key that is held in this process must also subscribe on the servers,
// because another process may hold the key by the time of its release. One subscription serves many callers.
func (g *Gate) mustSubscribe(h *hold, key string, d time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d <= 0 || h.freed || leasing.Until(h.subscribed[key]) >= d-min(d/2, subscribeSlack) {
		return false
	}
	if h.subscribed == nil {
		h.subscribed = map[string]time.Time{}
	}
	h.subscribed[key] = time.Now().Add(d)
	return true
}

// subscribe subscribes on the servers by an attempt that they refuse. It returns true if they granted the attempt: then
// the key has become free.
func (g *Gate) subscribe(ctx context.Context, h *hold, key string, opts Options) bool {
	opts.block = 1
	lease, err := g.inner.Acquire(ctx, []string{key}, opts)
	if err == nil {
		if _ = lease.Release(ctx); lease.ShouldNotify() { // others were refused meanwhile
			go g.lateReleases().report(lease.Keys())
		}
		return true
	}
	if !errors.Is(err, ErrHeld) {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(h.subscribed, key)
	}
	return false
}

// Watch watches for releases of the keys in this process and elsewhere: see [Watcher].
func (g *Gate) Watch(ctx context.Context, keys []string) (<-chan struct{}, func(), error) {
	keys = slices.Clone(keys)
	released, notify := subscription.NewNotifier()
	stopInner := func() {}
	if watcher, ok := g.inner.(Watcher); ok {
		inner, stop, err := watcher.Watch(ctx, keys)
		if err != nil {
			return nil, nil, err
		}
		ended := make(chan struct{})
		go func() {
			for {
				select {
				case <-inner:
					notify()
				case <-ended:
					return
				}
			}
		}()
		stopInner = func() {
			close(ended)
			stop()
		}
	}
	s := &subscriber{notify}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		g.subscribers[key] = append(g.subscribers[key], s)
	}
	return released, sync.OnceFunc(func() {
		stopInner()
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, key := range keys {
			left := slices.DeleteFunc(g.subscribers[key], func(other *subscriber) bool { return other == s })
			g.subscribers[key] = left
			if len(left) == 0 {
				delete(g.subscribers, key)
			}
		}
	}), nil
}
