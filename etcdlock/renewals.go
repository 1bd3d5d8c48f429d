package etcdlock

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

const (
	// gather is how long a renewal waits for others, unless it is urgent.
	gather = 20 * time.Millisecond
	// batchPatience is how long the next batch waits for the one before: that may have met a member that hangs, and the
	// client sends the next one to another.
	batchPatience = 100 * time.Millisecond
)

// renewals renews leases of etcd, and checks their locks, in batches: what comes while a batch is under way goes with the
// next one. A batch is one stream of keep-alives and one transaction that reads, so a renewal costs a fraction of what
// two calls of its own would, and a process that gets little time still renews all of its leases.
type renewals struct {
	client *clientv3.Client
	remote pb.LeaseClient

	mu        sync.Mutex
	queue     []*renewal
	gathering bool // a timer will start a batch
	busy      bool // a batch is under way that is not old yet
}

func newRenewals(client *clientv3.Client) *renewals {
	return &renewals{client: client, remote: clientv3.RetryLeaseClient(client)}
}

// renewal is the renewal of one lease of etcd.
type renewal struct {
	lease    clientv3.LeaseID
	locks    []string // to be checked
	revision int64    // at which they were created
	urgent   bool     // a caller waits for the lease

	batch   *batch        // nil while it is queued
	left    bool          // its caller has left
	done    chan struct{} // closed when the rest is known
	lost    int           // the place of a lock that was not created then, from 1; 0 for none
	err     error         // of the renewal
	unknown error         // of the check
}

// batch is what is renewed at the same time.
type batch struct {
	all     []*renewal
	waiting int // callers
	cancel  context.CancelFunc
}

// do carries out a renewal.
func (b *renewals) do(ctx context.Context, r *renewal) {
	r.done = make(chan struct{})
	b.mu.Lock()
	b.queue = append(b.queue, r)
	switch {
	case r.urgent:
		b.start()
	case !b.gathering:
		b.gathering = true
		time.AfterFunc(gather, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.gathering = false
			b.start()
		})
	}
	b.mu.Unlock()
	select {
	case <-r.done:
	case <-ctx.Done():
		if !b.leave(r) {
			<-r.done
			return
		}
		r.err = ctx.Err()
	}
}

// leave ends the wait for a renewal, and its batch if nobody waits for it any more. It returns false if the renewal was
// carried out meanwhile.
func (b *renewals) leave(r *renewal) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-r.done:
		return false
	default:
	}
	r.left = true
	if r.batch != nil {
		r.batch.waiting--
		if r.batch.waiting == 0 {
			r.batch.cancel()
		}
	}
	return true
}

// start starts a batch, unless it has to wait for the one before. The caller holds the mutex.
func (b *renewals) start() {
	if b.busy {
		return
	}
	next := &batch{}
	for ops := 0; len(b.queue) > 0; b.queue = b.queue[1:] {
		r := b.queue[0]
		if r.left {
			continue
		}
		ops += max(len(r.locks), 1)
		if ops > opsPerTxn && len(next.all) > 0 {
			break
		}
		r.batch = next
		next.all = append(next.all, r)
	}
	next.waiting = len(next.all)
	if next.waiting == 0 {
		return
	}
	var ctx context.Context
	ctx, next.cancel = bounded(context.Background())
	b.busy = true
	go b.run(ctx, next)
}

// run carries out a batch.
func (b *renewals) run(ctx context.Context, next *batch) {
	defer next.cancel()
	old := sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.busy = false
		if !b.gathering || len(b.queue) >= opsPerTxn || b.anyUrgent() {
			b.start()
		}
	})
	defer old()
	defer time.AfterFunc(batchPatience, old).Stop()

	renewed, kept := make([]error, len(next.all)), make(chan struct{})
	go func() {
		defer close(kept)
		b.keepAlive(ctx, next.all, renewed)
	}()
	resp, err := b.look(ctx, next.all)
	<-kept
	b.mu.Lock()
	defer b.mu.Unlock()
	at := 0
	for i, r := range next.all {
		first := at
		at += len(r.locks)
		if r.left {
			continue
		}
		r.err, r.unknown = renewed[i], err
		for place := range r.locks {
			if err == nil && r.lost == 0 && !isCreatedAt(found(resp, first+place), r.revision) {
				r.lost = place + 1
			}
		}
		close(r.done)
	}
}

// anyUrgent reports whether a caller waits for a lease. The caller holds the mutex.
func (b *renewals) anyUrgent() bool {
	return slices.ContainsFunc(b.queue, func(r *renewal) bool { return r.urgent })
}

// errOrder reports an answer for another lease.
var errOrder = errors.New("etcd answers keep-alives out of order")

// keepAlive renews leases over one stream, on which etcd answers in the order of the requests.
func (b *renewals) keepAlive(ctx context.Context, all []*renewal, outcomes []error) {
	stream, err := b.remote.LeaseKeepAlive(clientv3.WithRequireLeader(ctx), grpc.WaitForReady(true))
	for i := 0; err == nil && i < len(all); i++ {
		err = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(all[i].lease)})
	}
	if errors.Is(err, io.EOF) {
		err = nil // the first answer says why
	}
	for i, r := range all {
		var resp *pb.LeaseKeepAliveResponse
		if err == nil {
			resp, err = stream.Recv()
		}
		switch {
		case err != nil:
			outcomes[i] = clientv3.ContextError(ctx, err)
		case resp.ID != int64(r.lease):
			err = errOrder
			outcomes[i] = err
		case resp.TTL <= 0:
			outcomes[i] = rpctypes.ErrLeaseNotFound
		}
	}
}

// look reads the locks.
func (b *renewals) look(ctx context.Context, all []*renewal) (*clientv3.TxnResponse, error) {
	var ops []clientv3.Op
	for _, r := range all {
		for _, lock := range r.locks {
			ops = append(ops, clientv3.OpGet(lock, clientv3.WithKeysOnly()))
		}
	}
	if len(ops) == 0 {
		return nil, nil //nolint:nilnil // nothing was asked
	}
	return b.client.Txn(ctx).Then(ops...).Commit()
}
