package locking

import (
	"context"
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/quorum"
)

// notifyWindow is how long notifications of several nodes count as one release.
const notifyWindow = 2 * time.Millisecond

// Watch watches for releases of the keys: see [Watcher]. It subscribes on all nodes, so it works while some of them are
// down. It notifies when a quorum of them has reported a release, or shortly after the first report.
func (r *Redlock) Watch(_ context.Context, keys []string) (<-chan struct{}, func(), error) {
	released, notify := newNotifier()
	gather := &gathering{quorum: quorum.Of(len(r.nodes)), notify: notify}
	var drops []func()
	stop := sync.OnceFunc(func() {
		for _, drop := range drops {
			drop()
		}
		gather.stop()
	})
	for _, n := range r.nodes {
		drop, err := n.subscription.add(channels(keys, r.opts.RedisKey), gather.add)
		if err != nil {
			stop()
			return nil, nil, err
		}
		drops = append(drops, drop)
	}
	return released, stop, nil
}

// gathering combines the notifications of several nodes into one.
type gathering struct {
	quorum int
	notify func()

	mu     sync.Mutex
	count  int         // within the window
	window *time.Timer // nil while none is open
	ended  bool
}

// add counts the notification of one node.
func (g *gathering) add() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	if g.window == nil {
		g.window = time.AfterFunc(notifyWindow, g.shut)
	}
	g.count++
	if g.count == g.quorum {
		g.notify()
	}
}

// shut ends the window.
func (g *gathering) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended && g.count < g.quorum {
		g.notify()
	}
	g.count, g.window = 0, nil
}

// stop ends the gathering.
func (g *gathering) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	if g.window != nil {
		g.window.Stop()
	}
}
