package locking

import (
	"context"
	"slices"
)

// announce tells the watches in this process that a hold ends. The caller holds the mutex.
func (g *Gate) announce(h *hold) {
	for _, key := range h.keys {
		for _, e := range g.ears[key] {
			e.notify()
		}
	}
}

// Watch returns a watch on the release of any of the keys, in this process or elsewhere: see [Watcher].
func (g *Gate) Watch(ctx context.Context, keys []string) (*Watch, error) {
	keys = slices.Clone(keys)
	w, notify := newWatch()
	stop := func() {}
	if watcher, ok := g.inner.(Watcher); ok {
		inner, err := watcher.Watch(ctx, keys)
		if err != nil {
			return nil, err
		}
		ended := make(chan struct{})
		go func() {
			for {
				select {
				case <-inner.C:
					notify()
				case <-ended:
					return
				}
			}
		}()
		stop = func() {
			close(ended)
			inner.Close()
		}
	}
	e := &listener{keys, notify}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		g.ears[key] = append(g.ears[key], e)
	}
	w.close = func() {
		stop()
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, key := range keys {
			g.ears[key] = slices.DeleteFunc(g.ears[key], func(other *listener) bool { return other == e })
			if len(g.ears[key]) == 0 {
				delete(g.ears, key)
			}
		}
	}
	return w, nil
}
