package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// callTimeout bounds one call. It is longer than an election takes with the defaults of etcd.
	callTimeout = 2 * time.Second
	// closeTimeout is how long Close waits for calls in the background.
	closeTimeout = 5 * time.Second
)

var errClosed = final{errors.New("the locker is closed")}

// store is the backend: locks in etcd.
type store struct {
	client *clientv3.Client
	prefix string
	leases *leases
	marks  *marks
	late   *lateReleases

	ctx    context.Context // of the watches
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	watches sync.WaitGroup
}

func newStore(client *clientv3.Client, prefix string) *store {
	s := &store{client: client, prefix: prefix, leases: newLeases(client)}
	s.marks, s.late = newMarks(s.leases), &lateReleases{leases: s.leases}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// lockKey returns the etcd key of the lock of a business key, which may have any bytes.
func (s *store) lockKey(key string) string { return s.prefix + "lock/" + key }

// notifyKey returns the etcd key that exists while callers wait for the release of a business key.
func (s *store) notifyKey(key string) string { return s.prefix + "notify/" + key }

// identity returns what stands in etcd for this place of locks. If there is nothing, it writes something random.
func (s *store) identity(ctx context.Context) (string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	name := s.prefix + "store"
	look, id := clientv3.OpGet(name), rand.Text()
	resp, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(name), ">", 0)).Then(look).Commit()
	if err == nil && !resp.Succeeded {
		missing := clientv3.Compare(clientv3.CreateRevision(name), "=", 0)
		resp, err = s.client.Txn(ctx).If(missing).Then(clientv3.OpPut(name, id)).Else(look).Commit()
	}
	if err != nil {
		return "", err
	}
	if kvs := found(resp, 0); len(kvs) > 0 {
		return string(kvs[0].Value), nil
	}
	return id, nil
}

func (s *store) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.watches.Wait()
	s.leases.close()
}

// tokensPerRevision is how many consecutive tokens a revision has: as many as an attempt can reserve.
const tokensPerRevision = 256

// tokenOf returns the first fencing token of a revision of etcd. Tokens must stay below 2^53, so that a database or a
// program that keeps them as floating point numbers does not round them.
func tokenOf(revision int64) (int64, error) {
	if revision <= 0 || revision >= 1<<53/tokensPerRevision {
		return 0, final{fmt.Errorf("etcd is at revision %d, which makes no fencing token between 1 and 2^53: "+
			"use a new cluster, and reset the tokens that the guarded resources have seen", revision)}
	}
	return revision * tokensPerRevision, nil
}

// bounded returns a context for one call.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callTimeout)
}
