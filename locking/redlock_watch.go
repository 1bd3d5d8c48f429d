package locking

import (
	"context"
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/quorum"
)

// noticeWindow is within which the notices of several nodes are taken for one release.
const noticeWindow = 2 * time.Millisecond

// Watch returns a watch on the release of any of the keys: see [Watcher]. It follows all nodes, so that some of them may be away; a
// notice comes when a quorum of them has told of a release, or shortly after the first one has.
func (r *Redlock) Watch(_ context.Context, names []string) (*Watch, error) {
	w, notify := newWatch()
	gather := &gathering{quorum: quorum.Of(len(r.nodes)), notify: notify}
	var drops []func()
	w.close = func() {
		for _, drop := range drops {
			drop()
		}
		gather.stop()
	}
	for _, n := range r.nodes {
		drop, err := n.notices.watch(channels(names, r.opts.RedisKey), gather.add)
		if err != nil {
			w.Close()
			return nil, err
		}
		drops = append(drops, drop)
	}
	return w, nil
}

// gathering makes one notice of those of several nodes.
type gathering struct {
	quorum int
	notify func()

	mu     sync.Mutex
	count  int         // within the window
	window *time.Timer // not nil while a window is open
	ended  bool
}

// add takes in the notice of one node.
func (g *gathering) add() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	if g.window == nil {
		g.window = time.AfterFunc(noticeWindow, g.shut)
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
