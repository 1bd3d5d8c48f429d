package etcdlock

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/railtoken/railtoken/locking"
)

// opsPerTxn is etcd's default limit of operations in one transaction.
const opsPerTxn = 128

// grant is one acquisition. A lock is this grant's if it was created at its revision.
type grant struct {
	store    *store
	keys     []string
	lease    *etcdLease
	revision int64
	token    int64
	block    int
}

// Fence returns the first token of the block. All keys of a grant have the same tokens.
func (g *grant) Fence(context.Context, int) (int64, error) { return g.token, nil }

// Block returns how many consecutive tokens are reserved.
func (g *grant) Block() int { return g.block }

// Renew renews the etcd lease, and checks that all locks are there, with other grants in one batch. It cannot shorten the etcd lease: near MaxHold the
// locks of a crashed holder last longer than they need to.
func (g *grant) Renew(ctx context.Context, _ time.Duration) error {
	r := &renewal{lease: g.lease.id, locks: make([]string, len(g.keys)), revision: g.revision}
	for i, key := range g.keys {
		r.locks[i] = g.store.lockKey(key)
	}
	g.store.leases.renewals.do(ctx, r)
	switch {
	case r.lost > 0:
		return &locking.LostError{Keys: g.keys[r.lost-1 : r.lost], Reason: locking.LossTaken}
	case isGone(r.err):
		return &locking.LostError{Keys: g.keys, Reason: locking.LossTaken, Err: r.err}
	case r.err != nil || r.unknown != nil:
		return g.store.op(ctx, "renew", g.keys, errors.Join(r.err, r.unknown))
	default:
		return nil
	}
}

// Release deletes the locks in one transaction if all of them are this grant's, and keeps the etcd lease for the next
// attempt. Otherwise it revokes the etcd lease, which deletes what is left of them. Without an answer the deletion is
// repeated in the background.
func (g *grant) Release(ctx context.Context) (notify bool, err error) {
	call, cancel := bounded(ctx)
	defer cancel()
	var free, waiting []clientv3.Op
	for _, key := range g.keys {
		free = append(free, clientv3.OpDelete(g.store.lockKey(key)))
		waiting = append(waiting, clientv3.OpGet(g.store.notifyKey(key), clientv3.WithKeysOnly()))
	}
	apart := 2*len(g.keys) > opsPerTxn
	if !apart {
		free = append(free, waiting...)
	}
	resp, err := g.store.client.Txn(call).If(g.mine()...).Then(free...).Else(g.look()...).Commit()
	switch {
	case err != nil:
		g.store.late.add(g) // the etcd lease ends by itself
		return true, g.store.op(ctx, "release", g.keys, err)
	case !resp.Succeeded:
		_ = g.store.leases.revokeNow(ctx, g.lease)
		return true, g.lost(resp)
	}
	g.store.leases.giveBack(g.lease)
	if apart {
		return g.isAwaited(ctx, waiting), nil
	}
	return marked(resp, len(g.keys)), nil
}

// isAwaited reports whether callers wait for one of the keys, or whether that is unknown. A caller that was refused
// before the release has left its mark by then.
func (g *grant) isAwaited(ctx context.Context, waiting []clientv3.Op) bool {
	ctx, cancel := bounded(ctx)
	defer cancel()
	resp, err := g.store.client.Txn(ctx).Then(waiting...).Commit()
	return err != nil || marked(resp, 0)
}

// marked reports whether one of the operations of a transaction, from the first one on, has found a mark.
func marked(resp *clientv3.TxnResponse, first int) bool {
	for i := first; i < len(resp.Responses); i++ {
		if len(found(resp, i)) > 0 {
			return true
		}
	}
	return false
}

// mine returns the condition that all locks are this grant's.
func (g *grant) mine() []clientv3.Cmp {
	cmps := make([]clientv3.Cmp, len(g.keys))
	for i, key := range g.keys {
		cmps[i] = clientv3.Compare(clientv3.CreateRevision(g.store.lockKey(key)), "=", g.revision)
	}
	return cmps
}

// look returns what reads the locks.
func (g *grant) look() []clientv3.Op {
	ops := make([]clientv3.Op, len(g.keys))
	for i, key := range g.keys {
		ops[i] = clientv3.OpGet(g.store.lockKey(key), clientv3.WithKeysOnly())
	}
	return ops
}

// lost returns the loss of the first lock that is not this grant's. Only an expiry, an operator or another program
// deletes a lock before its release.
func (g *grant) lost(resp *clientv3.TxnResponse) error {
	lost := g.keys
	for i, key := range g.keys {
		if !isCreatedAt(found(resp, i), g.revision) {
			lost = []string{key}
			break
		}
	}
	return &locking.LostError{Keys: lost, Reason: locking.LossTaken}
}
