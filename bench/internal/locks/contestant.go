package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/internal/testing/etcdtest"
)

// TTL is that of every lock. Each library is set up as its documentation recommends, with names of its own for its keys.
const TTL = 30 * time.Second

// Names of the contestants that others are compared with.
const (
	Railtoken       = "railtoken"
	NameFloor       = "floor"
	NameRueidislock = "rueidislock"
)

// What a lock may report.
var (
	ErrTaken = errors.New("another caller has the key")
	errGone  = errors.New("the key was no longer held at the release")
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

	open        func(addrs []string, connections int) (*Locker, error)
	hasPool     bool // of go-redis
	connections int  // of such a pool; 0 for its default
}

// Open sets the kind up on the servers with these addresses: one, or several that are independent of each other; those
// of the members of a cluster for etcd, and the URL of a database for PostgreSQL.
func (k Kind) Open(addrs []string) (*Locker, error) { return k.open(addrs, k.connections) }

// Lock acquires a key, calls hold and releases the key. It does not call hold when it does not get the key. The end of
// ctx does not keep it from the release.
type Lock func(ctx context.Context, key string, hold func()) error

// Locker is one contestant. Its functions may be called by many goroutines at the same time.
type Locker struct {
	// Try tries once, for keys that no other caller wants.
	Try Lock
	// Wait waits for the key in the contestant's own way, until ctx ends. It is nil for one that cannot wait.
	Wait Lock
	// Close ends its connections.
	Close func() error
}

// The contestants on a single server and on several independent ones, and those of either for keys that many want.
var (
	OneNode            = []Kind{Floor, Plain, gated, Redislock, Redsync, Rueidislock, Etcd}
	FiveNodes          = []Kind{Plain, Redsync, RedsyncFailFast, Rueidislock, Etcd}
	Contended          = []Kind{Gate, Redislock, Redsync, Rueidislock, Etcd}
	ContendedFiveNodes = []Kind{Gate, Redsync, RedsyncFailFast, Rueidislock, Etcd}
)

// The contestants on etcd and PostgreSQL, and those of them that can wait for a key that many want.
var (
	Stores        = []Kind{Etcd, Etcdlock, Advisory, Row, Pglock}
	WaitingStores = []Kind{Etcd, Etcdlock, Advisory, Pglock}
)

// over returns a Locker whose Close then also ends what it rests on. That is ended at once when there is an error.
func over(base func() error, l *Locker, err error) (*Locker, error) {
	if err != nil {
		return nil, errors.Join(err, base())
	}
	own := l.Close
	l.Close = base
	if own != nil {
		l.Close = func() error { return errors.Join(own(), base()) }
	}
	return l, nil
}

// Pooled returns those of the kinds that keep a pool of go-redis with so many connections, under names of their own. By
// itself a pool has ten for each processor, which is little for many callers that are far away from the server.
func Pooled(kinds []Kind, connections int) []Kind {
	var pooled []Kind
	for _, k := range kinds {
		if k.hasPool {
			k.Name, k.connections = fmt.Sprintf("%s pool %d", k.Name, connections), connections
			pooled = append(pooled, k)
		}
	}
	return pooled
}
