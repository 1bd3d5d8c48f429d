package etcdlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/railtoken/railtoken/internal/backlog"
	"github.com/railtoken/railtoken/internal/leasing"
)

const (
	maxSpares = 256              // etcd leases that wait to be used again
	undoFor   = 10 * time.Minute // how long an attempt or a release without an answer is undone
)

// etcdLease is a lease of etcd that no lock or one grant uses.
type etcdLease struct {
	id      clientv3.LeaseID
	seconds int64     // its TTL
	renewed time.Time // before the call that granted or renewed it was sent
	stale   bool      // it must be renewed for locks that last for their TTL
}

// leases grants and revokes leases of etcd. The lease of a grant that was released, or of an attempt that was refused,
// is kept for the next attempt, which then needs one write less.
type leases struct {
	client   *clientv3.Client
	renewals *renewals
	undoing  *backlog.Backlog // of attempts and releases without an answer

	mu     sync.Mutex
	spares []*etcdLease // the last one was used last
	closed bool
}

func newLeases(client *clientv3.Client) *leases {
	return &leases{
		client: client, renewals: newRenewals(client),
		undoing: backlog.New(backlog.Options{AfterClose: callTimeout}),
	}
}

// secondsOf returns a duration in etcd's unit, rounded up.
func secondsOf(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// spareTime is how much longer than its locks a lease of etcd lasts: for that long it can be used again without a
// renewal.
const spareTime = time.Second

// take returns a lease for ttl: a spare one, unless fresh, or one that it grants.
func (l *leases) take(ctx context.Context, ttl time.Duration, fresh bool) (*etcdLease, error) {
	seconds := secondsOf(ttl + spareTime)
	if !fresh {
		spare, err := l.takeSpare(ttl, seconds)
		if spare != nil || err != nil {
			return spare, err
		}
	}
	lease, granted, err := l.grant(ctx, seconds)
	if err != nil {
		return nil, err
	}
	if granted > seconds {
		l.revoke(lease)
		return nil, errFloor(ttl, granted)
	}
	return lease, nil
}

// errFloor reports that the shortest lease of etcd would keep the keys of a crashed holder locked for too long.
func errFloor(ttl time.Duration, floor int64) error {
	return final{fmt.Errorf("TTL is %v, but this etcd grants leases of at least %d s, which is 1.5 times its election "+
		"timeout, and a lease lasts for the TTL and %v: raise TTL to %d s, or lower --election-timeout of etcd",
		ttl, floor, spareTime, floor-secondsOf(spareTime))}
}

// grant grants a lease. etcd may grant a longer one.
func (l *leases) grant(ctx context.Context, seconds int64) (lease *etcdLease, granted int64, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	began := time.Now()
	resp, err := l.client.Grant(ctx, seconds)
	if err != nil {
		return nil, 0, err // without a key, it ends by itself
	}
	return &etcdLease{id: resp.ID, seconds: seconds, renewed: began}, resp.TTL, nil
}

// takeSpare returns the spare lease of this length that was used last, or nil.
func (l *leases) takeSpare(ttl time.Duration, seconds int64) (*etcdLease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	for i := len(l.spares) - 1; i >= 0; i-- {
		lease := l.spares[i]
		if lease.seconds != seconds || lease.age() > lease.ttl()/2 {
			continue
		}
		l.spares = append(l.spares[:i], l.spares[i+1:]...)
		lease.stale = lease.age() > lease.ttl()-ttl
		return lease, nil
	}
	return nil, nil
}

func (e *etcdLease) age() time.Duration { return leasing.Since(e.renewed) }

func (e *etcdLease) ttl() time.Duration { return time.Duration(e.seconds) * time.Second }

// renew renews a lease.
func (l *leases) renew(ctx context.Context, id clientv3.LeaseID) error {
	r := &renewal{lease: id, urgent: true}
	l.renewals.do(ctx, r)
	return r.err
}

// giveBack keeps a lease that has no key for the next attempt. The lease must be known to have none, and no
// transaction that names it may be under way.
func (l *leases) giveBack(lease *etcdLease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.spares) > 0 && l.spares[0].age() > l.spares[0].ttl() {
		l.spares = l.spares[1:] // it has ended by itself
	}
	if l.closed || len(l.spares) >= maxSpares {
		return // it ends by itself
	}
	l.spares = append(l.spares, lease)
}

// revokeNow revokes a lease, and with it all of its keys. If that fails, it is repeated in the background.
func (l *leases) revokeNow(ctx context.Context, lease *etcdLease) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err := l.tryRevoke(ctx, lease)
	if err != nil {
		l.revoke(lease)
	}
	return err
}

// tryRevoke revokes a lease. A lease that does not exist is revoked.
func (l *leases) tryRevoke(ctx context.Context, lease *etcdLease) error {
	if _, err := l.client.Revoke(ctx, lease.id); err != nil && !isGone(err) {
		return err
	}
	return nil
}

// revoke revokes a lease in the background, again and again until etcd has answered: the oldest first, and many at the
// same time as soon as etcd answers. After that a transaction that names the lease fails, however late it is applied.
func (l *leases) revoke(lease *etcdLease) {
	l.undoing.Add(&backlog.Call{
		For:  undoFor,
		Over: func() {},
		Try: func(ctx context.Context) error {
			ctx, cancel := bounded(ctx)
			defer cancel()
			if l.isClientClosed() {
				return nil
			}
			return l.tryRevoke(ctx, lease)
		},
	}, false)
}

// isClientClosed reports whether nothing can be sent any more.
func (l *leases) isClientClosed() bool { return l.client.Ctx().Err() != nil }

// close waits for what is undone in the background, and ends them after closeTimeout. Spare leases end by themselves.
func (l *leases) close() {
	l.mu.Lock()
	l.closed, l.spares = true, nil
	l.mu.Unlock()
	l.undoing.Wait(context.Background(), closeTimeout)
	l.undoing.Close()
}
