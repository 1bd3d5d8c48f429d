package etcdlock

import (
	"context"
	"errors"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/railtoken/railtoken/internal/backlog"
)

// lateAtOnce is how many locks are deleted at once. etcd limits the operations of a transaction together with those of a
// transaction within it, which has one.
const lateAtOnce = opsPerTxn - 1

// mostLate is how many such transactions are under way at the same time.
const mostLate = 16

// lateReleases repeats releases without an answer in the background, until etcd has answered: the oldest first, and in
// batches, so that thousands of keys become free soon after etcd goes on. Each is idempotent, because it deletes the
// locks of one revision.
type lateReleases struct {
	leases *leases

	mu      sync.Mutex
	waiting []lateRelease
	running bool
	runs    int
}

// lateRelease is the deletion of a lock that was created at a revision.
type lateRelease struct {
	lock     string
	revision int64
}

// add repeats the release of a grant.
func (r *lateReleases) add(g *grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range g.keys {
		r.waiting = append(r.waiting, lateRelease{g.store.lockKey(key), g.revision})
	}
	if r.running {
		return
	}
	r.runs++
	run := r.runs
	r.running = r.leases.undoing.Add(&backlog.Call{For: undoFor, Try: r.try, Over: func() { r.over(run) }}, false)
	if !r.running {
		r.waiting = nil
	}
}

// try makes releases until none is left: one batch first, and twice as many at the same time after each answer, because
// each of them waits in etcd behind the attempts that are being undone.
func (r *lateReleases) try(ctx context.Context) error {
	for batches := 1; ; batches = min(2*batches, mostLate) {
		r.mu.Lock()
		now := slices.Clone(r.waiting[:min(len(r.waiting), batches*lateAtOnce)])
		r.running = len(now) > 0
		r.mu.Unlock()
		if len(now) == 0 || r.leases.isClientClosed() {
			return nil
		}
		errs := make([]error, (len(now)+lateAtOnce-1)/lateAtOnce)
		var calls sync.WaitGroup
		for i := range errs {
			calls.Go(func() { errs[i] = r.release(ctx, now[i*lateAtOnce:min((i+1)*lateAtOnce, len(now))]) })
		}
		calls.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		r.mu.Lock()
		r.waiting = r.waiting[len(now):]
		r.mu.Unlock()
	}
}

// release makes one batch of releases.
func (r *lateReleases) release(ctx context.Context, batch []lateRelease) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	ops := make([]clientv3.Op, len(batch))
	for i, late := range batch {
		mine := clientv3.Compare(clientv3.CreateRevision(late.lock), "=", late.revision)
		ops[i] = clientv3.OpTxn([]clientv3.Cmp{mine}, []clientv3.Op{clientv3.OpDelete(late.lock)}, nil)
	}
	_, err := r.leases.client.Txn(ctx).Then(ops...).Commit()
	return err
}

// over forgets what a run could not release in time: it ends with its TTL.
func (r *lateReleases) over(run int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running && run == r.runs {
		r.waiting, r.running = nil, false
	}
}
