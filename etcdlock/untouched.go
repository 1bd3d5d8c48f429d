package etcdlock

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/railtoken/railtoken/locking/backend"
)

var _ backend.UntouchedGrant = (*grant)(nil)

// Untouched reports whether no lock of another grant has existed since this one: see [backend.UntouchedGrant]. The lock of
// a lease that has expired is gone, so etcd's history tells. It is false once etcd has compacted that.
func (g *grant) Untouched(ctx context.Context) (bool, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	resp, err := g.store.client.Txn(ctx).Then(g.look()...).Commit()
	if err != nil {
		return false, g.store.op(ctx, "look at", g.keys, err)
	}
	for i, key := range g.keys {
		locks := found(resp, i)
		if isCreatedAt(locks, g.revision) {
			continue
		}
		if len(locks) > 0 {
			return false, nil
		}
		if ours, err := g.wasLast(ctx, g.store.lockKey(key), resp.Header.GetRevision()); err != nil || !ours {
			return false, err
		}
	}
	return true, nil
}

// wasLast reports whether the history of a lock, from its creation by this grant until a revision at which it did not
// exist, has nothing but its deletion. A response to a watch has all events up to the revision of its header. Only those
// of more than a thousand revisions come in several responses: then the first one has another creation.
func (g *grant) wasLast(ctx context.Context, lock string, until int64) (bool, error) {
	watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for resp := range g.store.client.Watch(watching, lock, clientv3.WithRev(g.revision+1)) {
		if resp.CompactRevision != 0 {
			return false, nil
		}
		if err := resp.Err(); err != nil {
			return false, g.store.op(ctx, "look at", g.keys, err)
		}
		for _, event := range resp.Events {
			if event.Type != clientv3.EventTypeDelete {
				return false, nil
			}
		}
		if resp.Header.GetRevision() >= until {
			return true, nil
		}
	}
	return false, g.store.op(ctx, "look at", g.keys, errors.New("the watch of its history has ended"))
}
