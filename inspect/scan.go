package inspect

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
)

const (
	// scanStep is how many Redis keys one call looks at, and mostScanned how many a Scan looks at on one server: Redis
	// does nothing else during a call.
	scanStep    = 1000
	mostScanned = 1_000_000
)

// Scan returns at most n keys that are locked on any lock server, whichever program holds them, in no particular order.
// [Inspector.Look] shows the holder of one of them.
//
// It looks at all Redis keys, 1000 per call, and gives up with complete = false after a million on one server. It finds
// only locks with the usual names: with [Options].RedisKey it returns an error.
func (i *Inspector) Scan(ctx context.Context, n int) (locked []string, complete bool, err error) {
	if !i.usualKeys {
		return nil, false, fmt.Errorf("inspect: locks with names of their own cannot be found: look at a key instead")
	}
	found, complete := map[string]bool{}, true
	for _, s := range i.servers {
		all, err := s.scan(ctx, n, found)
		if err != nil {
			return nil, false, fmt.Errorf("inspect: scan for locks at %s: %w", s.addr, err)
		}
		complete = complete && all
	}
	for key := range found {
		locked = append(locked, key)
	}
	return locked, complete, nil
}

// scan adds the locked keys of a server to found, until it has n. It returns false if there may be more.
func (s *server) scan(ctx context.Context, n int, found map[string]bool) (complete bool, err error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return scanOne(ctx, s.client, n, found, new(sync.Mutex))
	}
	complete = true
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		all, err := scanOne(ctx, master, n, found, &mu)
		mu.Lock()
		defer mu.Unlock()
		complete = complete && all
		return err
	})
	return complete, err
}

func scanOne(
	ctx context.Context, client redis.UniversalClient, n int, found map[string]bool, mu *sync.Mutex,
) (complete bool, err error) {
	var cursor uint64
	for range mostScanned / scanStep {
		page, next, err := client.Scan(ctx, cursor, lockPrefix+"*}", scanStep).Result()
		if err != nil {
			return false, err
		}
		mu.Lock()
		for _, name := range page {
			if key, ok := lockedKey(name); ok && len(found) < n {
				found[key] = true
			}
		}
		full := len(found) >= n
		mu.Unlock()
		if next == 0 {
			return true, nil
		}
		if full {
			return false, nil
		}
		cursor = next
	}
	return false, nil
}

const lockPrefix = "railtoken:lock:{"

// lockedKey returns the business key of the Redis key of a lock.
func lockedKey(name string) (string, bool) {
	encoded, ok := strings.CutPrefix(name, lockPrefix)
	if !ok {
		return "", false
	}
	if encoded, ok = strings.CutSuffix(encoded, "}"); !ok {
		return "", false
	}
	return rediswire.Decode(encoded)
}
