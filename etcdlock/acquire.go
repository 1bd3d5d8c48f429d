package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/backend"
)

// Acquire makes one attempt: see [backend.Backend].
func (s *store) Acquire(ctx context.Context, r backend.Request) (backend.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, &locking.OpError{Op: "acquire", Keys: r.Keys, Err: context.Cause(ctx)}
	}
	if r.Block > tokensPerRevision {
		return nil, fmt.Errorf("etcdlock: a block of %d tokens: a revision of etcd has %d", r.Block, tokensPerRevision)
	}
	g, err := s.attempt(ctx, r, false)
	if isGone(err) { // of the spare lease, so nothing was taken
		g, err = s.attempt(ctx, r, true)
	}
	if held, ok := errors.AsType[*locking.HeldError](err); ok {
		return nil, held
	}
	if err != nil {
		return nil, s.op(ctx, "acquire", r.Keys, err)
	}
	return g, nil
}

// attempt makes one attempt, with a lease that is fresh or may be a spare one.
func (s *store) attempt(ctx context.Context, r backend.Request, fresh bool) (*grant, error) {
	lease, err := s.leases.take(ctx, r.TTL, fresh)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // nothing was sent that must be undone
		s.leases.giveBack(lease)
		return nil, context.Cause(ctx)
	}
	a, err := s.ask(ctx, lease, r, sharedLease{})
	if err == nil && !a.granted && r.Notify > 0 && !s.marks.arePlaced(r.Keys, r.Notify) {
		var again answer
		if again, err = s.askAndMark(ctx, lease, r); again.granted {
			a = again
		}
	}
	switch {
	case err != nil:
		s.leases.revoke(lease) // it may have keys, or get them later
		return nil, err
	case !a.granted:
		s.leases.giveBack(lease)
		return nil, s.held(ctx, a.key, a.lock)
	}
	token, err := tokenOf(a.revision)
	if err != nil {
		s.leases.revoke(lease)
		return nil, err
	}
	return &grant{store: s, keys: r.Keys, lease: lease, revision: a.revision, token: token, block: r.Block}, nil
}

// askAndMark asks again, and subscribes to the releases of the keys in the transaction that refuses the attempt: so the
// holder that refuses it sees the subscription when it releases.
func (s *store) askAndMark(ctx context.Context, lease *etcdLease, r backend.Request) (answer, error) {
	mark, err := s.marks.lease(ctx, r.Notify)
	if err != nil {
		return answer{}, err
	}
	a, err := s.ask(ctx, lease, r, mark)
	if isGone(err) {
		s.marks.forget(mark)
		return answer{}, fmt.Errorf("%w: a lease of etcd has ended early: %v", locking.ErrUnavailable, err) //nolint:errorlint // it is not the attempt's
	}
	if err == nil && !a.granted {
		s.marks.place(r.Keys, mark.until)
	}
	return a, err
}

// ask makes the transaction that takes all of the keys or none. Meanwhile it renews a stale lease, so that the locks
// last for their TTL. With a mark, a refusal subscribes to the releases of the keys, and does not name the
// holder: the operations of both would be too many for 65 keys or more.
func (s *store) ask(ctx context.Context, lease *etcdLease, r backend.Request, mark sharedLease) (answer, error) {
	renewed := make(chan error, 1)
	began := time.Now()
	if lease.stale {
		go func() { renewed <- s.leases.renew(ctx, lease.id) }()
	} else {
		renewed <- nil
	}
	a, err := s.commit(ctx, lease, r, mark)
	failed := <-renewed
	if failed == nil && lease.stale {
		lease.stale, lease.renewed = false, began
	}
	if err == nil && !a.granted {
		return a, nil
	}
	if err := errors.Join(err, failed); err != nil {
		return answer{}, err
	}
	return a, nil
}

// commit makes the transaction of an attempt.
func (s *store) commit(ctx context.Context, lease *etcdLease, r backend.Request, mark sharedLease) (answer, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	free := make([]clientv3.Cmp, len(r.Keys))
	take, look := make([]clientv3.Op, len(r.Keys)), make([]clientv3.Op, len(r.Keys))
	value := holderValue{Label: r.Label, Since: time.Now().Round(0), TTL: secondsOf(r.TTL)}.encode()
	for i, key := range r.Keys {
		lock := s.lockKey(key)
		free[i] = clientv3.Compare(clientv3.CreateRevision(lock), "=", 0)
		take[i] = clientv3.OpPut(lock, value, clientv3.WithLease(lease.id))
		look[i] = clientv3.OpGet(lock)
		if mark.id != clientv3.NoLease {
			look[i] = clientv3.OpPut(s.notifyKey(key), "", clientv3.WithLease(mark.id))
		}
	}
	resp, err := s.client.Txn(ctx).If(free...).Then(take...).Else(look...).Commit()
	if err != nil {
		return answer{}, err
	}
	return readAnswer(resp, r.Keys)
}
