package locking

import (
	"context"
	"sync"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/quorum"
	"github.com/railtoken/railtoken/internal/subscription"
)

// Watch watches for releases of the keys: see [Watcher]. It subscribes on all nodes, so it works while some of them are
// down. It notifies when a quorum of them has reported a release, or shortly after the first report.
func (r *Redlock) Watch(_ context.Context, keys []string) (<-chan struct{}, func(), error) {
	released, notify := subscription.NewNotifier()
	gather := subscription.Gather(quorum.Of(len(r.nodes)), notify)
	var drops []func()
	stop := sync.OnceFunc(func() {
		for _, drop := range drops {
			drop()
		}
		gather.Stop()
	})
	for _, n := range r.nodes {
		drop, err := n.subscription.Add(lockwire.Channels(keys, r.opts.RedisKey), gather.Add)
		if err != nil {
			stop()
			return nil, nil, err
		}
		drops = append(drops, drop)
	}
	return released, stop, nil
}
