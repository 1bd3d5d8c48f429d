package locking

import (
	"fmt"
	"strings"

	"github.com/railtoken/railtoken/internal/keys"
)

// lockKey returns the Redis key of a business key's lock.
func lockKey(key string) string { return "railtoken:lock:{" + keys.Encode(key) + "}" }

// redisKeysOf returns the Redis keys of business keys: for each, its lock, fence counter and subscription, which are in
// one slot.
func redisKeysOf(businessKeys []string, lockKey func(string) string) ([]string, error) {
	all := make([]string, 0, 3*len(businessKeys))
	for _, key := range businessKeys {
		lock := lockKey(key)
		base := lock
		if keys.Tag(lock) == lock {
			if strings.ContainsAny(lock, "{}") {
				return nil, fmt.Errorf("locking: RedisKey made %q of key %q: "+
					"a name with a brace must have a hash tag, such as {%s}", lock, key, keys.Encode(key))
			}
			base = "{" + lock + "}"
		}
		all = append(all, lock, base+":fence", base+":notify")
	}
	return all, nil
}

// inOneSlot reports whether all Redis keys are in one slot of a cluster.
func inOneSlot(redisKeys []string) bool {
	for _, key := range redisKeys[1:] {
		if keys.Slot(key) != keys.Slot(redisKeys[0]) {
			return false
		}
	}
	return true
}

// channels returns the names of the channels in which the releases of business keys are published.
func channels(businessKeys []string, lockKey func(string) string) []string {
	all := make([]string, len(businessKeys))
	for i, key := range businessKeys {
		all[i] = lockKey(key)
	}
	return all
}
