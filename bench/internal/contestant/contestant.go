// Package contestant sets up locks of several libraries to be measured against each other, each as its own documentation
// recommends: the same servers, the same TTL, a key of its own name.
package contestant

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// TTL is that of every lock.
const TTL = 30 * time.Second

// Names of the contestants that others are compared with.
const (
	Railtoken       = "railtoken"
	NameFloor       = "floor"
	NameRedislock   = "redislock"
	NameRedsync     = "redsync"
	NameRueidislock = "rueidislock"
)

// A Kind is a way to lock that can be set up on some servers.
type Kind struct {
	Name string
	// Open sets it up on the servers with these addresses: one, or several that are independent of each other.
	Open func(addrs []string) (Locker, error)
	// Aged is how long the servers must have run before they are trusted; zero when it asks for nothing.
	Aged time.Duration
}

// Locker is one contestant.
type Locker interface {
	// Pair acquires a key that nobody else wants, and releases it.
	Pair(ctx context.Context, key string) error
	// Do waits for a key in the contestant's own way, calls hold and releases it. It gives up waiting when ctx ends.
	Do(ctx context.Context, key string, hold func()) error
	// Close ends its connections.
	Close() error
}

// OneNode, FiveNodes and Contended are the contestants on a single server, on several independent ones, and for a key that
// many want, on a single server.
var (
	OneNode   = []Kind{Floor, Single, Redislock, Redsync, Rueidislock}
	FiveNodes = []Kind{Redsync, RedsyncFailFast, Rueidislock}
	Contended = []Kind{Redislock, Redsync, Rueidislock}
)

// Named returns the kind among kinds that has this name.
func Named(kinds []Kind, name string) (kind Kind, ok bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

// options are those of each go-redis client: the defaults, but for deadlines of contexts, which the lock libraries rely on to give up
// on a server that hangs, and a feature of other servers that would be tried in vain on each connection.
func options(addr string) *redis.Options {
	return &redis.Options{
		Addr:                     addr,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}
