package locks

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/railtoken/railtoken/etcdlock"
)

// The times by which the client notices that a member has gone are those of etcdctl.
const (
	etcdDialTimeout      = 2 * time.Second
	etcdKeepAlive        = 2 * time.Second
	etcdKeepAliveTimeout = 6 * time.Second
	etcdOpenTimeout      = 30 * time.Second
)

// Etcd is the mutex of go.etcd.io/etcd/client/v3/concurrency: a lock that consensus makes safe. A process has one
// session, whose lease keeps all its locks. Only callers that wait for keys that others of the same process want have a
// session each, as in the package's example: mutexes of one session do not exclude each other. It waits by a watch on
// the one before it.
var Etcd = onEtcd("etcd", func(client *clientv3.Client) (*Locker, error) {
	e := &etcd{client: client, free: map[string][]*concurrency.Session{}}
	session, err := e.open()
	if err != nil {
		return nil, err
	}
	try := func(ctx context.Context, key string, hold func()) error {
		return with(ctx, concurrency.NewMutex(session, key), (*concurrency.Mutex).TryLock, hold)
	}
	return &Locker{Try: try, Wait: e.wait}, nil
})

// Etcdlock is package etcdlock behind the gate where the callers of one process queue.
var Etcdlock = onEtcd("etcdlock", func(client *clientv3.Client) (*Locker, error) {
	l, err := etcdlock.New(client, etcdlock.Options{})
	if err != nil {
		return nil, err
	}
	return behindGate(l, l.Close), nil
})

// onEtcd returns a kind that has a client of its own.
func onEtcd(name string, open func(*clientv3.Client) (*Locker, error)) Kind {
	return Kind{Name: name, Store: OnEtcd, open: func(addrs []string, _ int) (*Locker, error) {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: addrs, Logger: zap.NewNop(),
			DialTimeout: etcdDialTimeout, DialKeepAliveTime: etcdKeepAlive, DialKeepAliveTimeout: etcdKeepAliveTimeout,
		})
		if err != nil {
			return nil, err
		}
		l, err := open(client)
		return over(client.Close, l, err)
	}}
}

// with holds the mutex when lock has locked it.
func with(
	ctx context.Context, mutex *concurrency.Mutex, lock func(*concurrency.Mutex, context.Context) error, hold func(),
) error {
	if err := lock(mutex, ctx); err != nil {
		return err
	}
	hold()
	return mutex.Unlock(context.Background())
}

// etcd lends sessions to callers that wait. They end with the client, and their leases by themselves: a cluster without
// a majority could not be asked to end them.
type etcd struct {
	client *clientv3.Client

	mu   sync.Mutex
	free map[string][]*concurrency.Session // by the key that they waited for
}

// open makes a session. Its lease must last longer than this call.
func (e *etcd) open() (*concurrency.Session, error) {
	ctx, cancel := context.WithTimeout(e.client.Ctx(), etcdOpenTimeout)
	defer cancel()
	lease, err := e.client.Grant(ctx, int64(TTL/time.Second))
	if err != nil {
		return nil, fmt.Errorf("a lease of etcd: %w", err)
	}
	return concurrency.NewSession(e.client, concurrency.WithLease(lease.ID))
}

// wait waits in etcd's queue, with a session that no other caller has meanwhile.
func (e *etcd) wait(ctx context.Context, key string, hold func()) error {
	session, err := e.take(key)
	if err != nil {
		return err
	}
	defer e.give(key, session)
	return with(ctx, concurrency.NewMutex(session, key), (*concurrency.Mutex).Lock, hold)
}

// take lends a session that has waited for the key before, or a new one. When a wait is called off too early for its
// own clean-up, its place in the queue stays, and the next wait of that session for that key takes it up: with another
// key the queue would stand still.
func (e *etcd) take(key string) (*concurrency.Session, error) {
	e.mu.Lock()
	if free := e.free[key]; len(free) > 0 {
		defer e.mu.Unlock()
		e.free[key] = free[:len(free)-1]
		return free[len(free)-1], nil
	}
	e.mu.Unlock()
	return e.open()
}

// give takes a session back, unless its lease has ended.
func (e *etcd) give(key string, session *concurrency.Session) {
	select {
	case <-session.Done():
	default:
		e.mu.Lock()
		defer e.mu.Unlock()
		e.free[key] = append(e.free[key], session)
	}
}
