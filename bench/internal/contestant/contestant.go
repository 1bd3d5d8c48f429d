// Package contestant sets up the locks of several libraries, each as its documentation recommends, so that they can be
// measured against each other. All use the same TTL and the same servers, or servers of their own kind on the same
// machine. Each has its own key names.
package contestant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/railtoken/railtoken/internal/dbtest"
	"github.com/railtoken/railtoken/internal/etcdtest"
)

// TTL is that of every lock.
const TTL = 30 * time.Second

// Names of the contestants that others are compared with.
const (
	Railtoken       = "railtoken"
	NameFloor       = "floor"
	NameRueidislock = "rueidislock"
)

// Store is the kind of server that a contestant locks on.
type Store int

// The stores.
const (
	OnRedis Store = iota
	OnEtcd
	OnPostgres
)

// Missing returns why the server is not installed, or nil. Without Redis there is no benchmark.
func (s Store) Missing() error {
	switch s {
	case OnEtcd:
		return etcdtest.Find()
	case OnPostgres:
		return dbtest.FindPostgres()
	default:
		return nil
	}
}

// A Kind is a way to lock that can be set up on some servers.
type Kind struct {
	Name  string
	Store Store
	// Open sets it up on the servers with these addresses: one, or several that are independent of each other; those of
	// the members of a cluster for etcd, and the URL of a database for PostgreSQL.
	Open func(addrs []string) (*Locker, error)

	pooled func(addrs []string, connections int) (*Locker, error)
}

// Locker is one contestant. Its functions may be called by many goroutines at the same time.
type Locker struct {
	// Pair acquires a key that no other caller wants, and releases it.
	Pair func(ctx context.Context, key string) error
	// Do waits for a key in the contestant's own way, calls hold and releases it. It gives up waiting when ctx ends.
	Do func(ctx context.Context, key string, hold func()) error
	// Close ends its connections.
	Close func() error
}

// The contestants on a single server and on several independent ones, and those of either for keys that many want.
var (
	OneNode            = []Kind{Floor, Single, gated, Redislock, Redsync, Rueidislock, Etcd}
	FiveNodes          = []Kind{Redlock, Redsync, RedsyncFailFast, Rueidislock, Etcd}
	Contended          = []Kind{Gate, Redislock, Redsync, Rueidislock, Etcd}
	ContendedFiveNodes = []Kind{GateRedlock, Redsync, RedsyncFailFast, Rueidislock, Etcd}
)

// The contestants on etcd and PostgreSQL, and those of them that can wait for a key that many want.
var (
	Stores        = []Kind{Etcd, Etcdlock, Advisory, Row, Pglock}
	WaitingStores = []Kind{Etcd, Etcdlock, Advisory, Pglock}
)

// OnOneKey returns the kinds with a Pair that waits for one and the same key, so that callers hand it to each other.
func OnOneKey(kinds []Kind) []Kind {
	all := slices.Clone(kinds)
	for i, k := range all {
		all[i].Open = func(addrs []string) (*Locker, error) {
			l, err := k.Open(addrs)
			if err != nil {
				return nil, err
			}
			var held atomic.Int32
			l.Pair = func(ctx context.Context, _ string) error {
				overlap := false
				err := l.Do(ctx, "one", func() {
					overlap = held.Add(1) > 1
					held.Add(-1)
				})
				if overlap {
					return errOverlap
				}
				return err
			}
			return l, nil
		}
	}
	return all
}

// Pooled returns those of the kinds that keep a pool of go-redis with so many connections, under names of their own. By
// itself a pool has ten for each processor, which is little for many callers that are far away from the server.
func Pooled(kinds []Kind, connections int) []Kind {
	var pooled []Kind
	for _, k := range kinds {
		if k.pooled != nil {
			open := func(addrs []string) (*Locker, error) { return k.pooled(addrs, connections) }
			pooled = append(pooled, Kind{Name: fmt.Sprintf("%s pool %d", k.Name, connections), Open: open})
		}
	}
	return pooled
}

// pooling returns a kind whose pools of go-redis can have another size than the usual one, which 0 stands for.
func pooling(name string, open func(addrs []string, connections int) (*Locker, error)) Kind {
	return Kind{Name: name, Open: func(addrs []string) (*Locker, error) { return open(addrs, 0) }, pooled: open}
}

// Named returns the kind among kinds that has this name.
func Named(kinds []Kind, name string) (Kind, error) {
	if i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name }); i >= 0 {
		return kinds[i], nil
	}
	return Kind{}, fmt.Errorf("there is no contestant %q", name)
}

// doesNotWait is the Do of a Locker that cannot wait.
func doesNotWait(context.Context, string, func()) error { return errors.ErrUnsupported }

// options are those of each go-redis client: the defaults, but for deadlines of contexts, which the lock libraries rely
// on to give up on a server that hangs, and a feature of other servers that would be tried in vain on each connection.
// connections is the size of the pool, the usual one when 0.
func options(addr string, connections int) *redis.Options {
	return &redis.Options{
		PoolSize:                 connections,
		Addr:                     addr,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}
