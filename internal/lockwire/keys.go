package lockwire

import (
	"fmt"
	"strings"

	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// StoreKey is the Redis key with the identity of a lock server.
const StoreKey = "railtoken:lock-store"

// LockKey returns the Redis key of a business key's lock, unless the user names it.
func LockKey(key string) string { return "railtoken:lock:{" + rediswire.Encode(key) + "}" }

// LockKeyIn returns the function that returns the Redis key of a business key's lock in lanes.
func LockKeyIn(l lanes.Lanes) func(key string) string {
	if l.Count() == 0 {
		return LockKey
	}
	return func(key string) string { return "railtoken:lock:{" + l.Encode(key) + "}" }
}

// RedisKeys returns the Redis keys of business keys: for each, its lock, fence counter and subscription, which are in
// one slot. lockKey returns that of the lock.
func RedisKeys(businessKeys []string, lockKey func(string) string) ([]string, error) {
	all := make([]string, 0, 3*len(businessKeys))
	for _, key := range businessKeys {
		lock := lockKey(key)
		base := lock
		if rediswire.Tag(lock) == lock {
			if strings.ContainsAny(lock, "{}") {
				return nil, fmt.Errorf("locking: RedisKey made %q of key %q: "+
					"a name with a brace must have a hash tag, such as {%s}", lock, key, rediswire.Encode(key))
			}
			base = "{" + lock + "}"
		}
		all = append(all, lock, base+":fence", base+":notify")
	}
	return all, nil
}

// Keys are the Redis keys of one business key, all in one slot.
type Keys struct{ Lock, Fence, Notify string }

// KeysOf returns the Redis keys of a business key. lockKey returns that of the lock; nil for the usual one.
func KeysOf(key string, lockKey func(string) string) (Keys, error) {
	if lockKey == nil {
		lockKey = LockKey
	}
	all, err := RedisKeys([]string{key}, lockKey)
	if err != nil {
		return Keys{}, err
	}
	return Keys{Lock: all[0], Fence: all[1], Notify: all[2]}, nil
}

// InOneSlot reports whether all Redis keys are in one slot of a cluster.
func InOneSlot(redisKeys []string) bool {
	for _, key := range redisKeys[1:] {
		if rediswire.Slot(key) != rediswire.Slot(redisKeys[0]) {
			return false
		}
	}
	return true
}

// Channels returns the names of the channels in which the releases of business keys are published.
func Channels(businessKeys []string, lockKey func(string) string) []string {
	all := make([]string, len(businessKeys))
	for i, key := range businessKeys {
		all[i] = lockKey(key)
	}
	return all
}
