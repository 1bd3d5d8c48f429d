package taskrun

import (
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/locking"
)

// Locker is a Gate and the locks behind it. Close closes the locks and ends their watches; it leaves the client open.
type Locker struct {
	*locking.Gate
	io.Closer

	// RedisKeys is that of locking.Single, if the locks are on a single Redis and can be looked at in the scripts of its
	// tasks; nil on a Redis Cluster and on several servers.
	RedisKeys func(key string) (lock, notify string)
}

var locks = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

// CloseBy closes the locks, and waits until the deadline at most.
func (l Locker) CloseBy(deadline time.Time) error { return locks.CloseBy(l.Closer, deadline) }

// OnClient returns locks on the Redis of a client, for leases of at most maxHold.
func OnClient(client redis.UniversalClient, maxHold time.Duration, allowEviction bool, lanes int) (Locker, error) {
	single, err := locking.NewSingle(client, locking.SingleOptions{FenceTTL: FenceTTL(maxHold), AllowEviction: allowEviction, Lanes: lanes})
	if err != nil {
		return Locker{}, err
	}
	l := behindGate(single)
	if _, oneNode := client.(*redis.Client); oneNode || lanes > 0 {
		l.RedisKeys = single.RedisKeys
	}
	return l, nil
}

// OnNodes returns locks on several independent servers (Redlock), in a namespace, for leases of at most maxHold.
func OnNodes(nodes []*redis.Options, guard locking.GuardMode, namespace string, maxHold time.Duration) (Locker, error) {
	redlock, err := locking.NewRedlock(nodes, locking.RedlockOptions{FenceTTL: FenceTTL(maxHold), Guard: guard, Namespace: namespace})
	if err != nil {
		return Locker{}, err
	}
	return behindGate(redlock), nil
}

// On returns a Locker of the caller's behind a Gate. Close leaves it open.
func On(l locking.Locker) Locker {
	gate, ok := l.(*locking.Gate)
	if !ok {
		gate = locking.NewGate(l, locking.GateOptions{})
	}
	return Locker{Gate: gate, Closer: open{}}
}

// open closes nothing.
type open struct{}

func (open) Close() error { return nil }

// FenceTTL returns how long fence counters must be kept for leases of at most maxHold.
func FenceTTL(maxHold time.Duration) time.Duration { return max(locking.DefaultFenceTTL, 2*maxHold) }

func behindGate(locks interface {
	locking.Locker
	io.Closer
},
) Locker {
	return Locker{Gate: locking.NewGate(locks, locking.GateOptions{}), Closer: locks}
}
