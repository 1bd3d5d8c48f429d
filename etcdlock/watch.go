package etcdlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watchPause follows a watch that etcd has ended.
const watchPause = 100 * time.Millisecond

// watch watches the locks of keys until it is stopped or the store is closed. ctx does not bound it, because a caller
// that waits gives up by stopping it.
func (s *store) watch(_ context.Context, keys []string) (released <-chan struct{}, stop func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, fmt.Errorf("etcdlock: watch: %w", errClosed)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	notified := make(chan struct{}, 1)
	notify := func() {
		select {
		case notified <- struct{}{}:
		default: // the caller is notified already
		}
	}
	for _, key := range slices.Clone(keys) {
		s.watches.Go(func() { s.follow(ctx, s.lockKey(key), notify) })
	}
	return notified, cancel, nil
}

// follow notifies of each deletion of a lock, by its holder or by the end of its etcd lease, until ctx ends. While it
// cannot watch it may miss some, so it notifies when it can watch again.
func (s *store) follow(ctx context.Context, lock string, notify func()) {
	for first := true; ; first = false {
		watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		events := s.client.Watch(watching, lock, clientv3.WithFilterPut())
		if !first {
			notify()
		}
		for resp := range events {
			if len(resp.Events) > 0 {
				notify()
			}
		}
		cancel()
		select {
		case <-time.After(watchPause):
		case <-ctx.Done():
			return
		}
	}
}
