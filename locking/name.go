package locking

import (
	"fmt"
	"strings"

	"github.com/railtoken/railtoken/internal/keys"
)

// lockName returns the Redis key of a business key's lock.
func lockName(key string) string { return "railtoken:lock:{" + keys.Encode(key) + "}" }

// redisKeys returns the Redis keys of business keys: the lock, the fence counter and the interest mark of each, which lie in one slot.
func redisKeys(names []string, name func(string) string) ([]string, error) {
	all := make([]string, 0, 3*len(names))
	for _, key := range names {
		lock := name(key)
		base := lock
		if keys.Tag(lock) == lock {
			if strings.ContainsAny(lock, "{}") {
				return nil, fmt.Errorf("locking: RedisKey made %q of key %q: a name with a brace must have a hash tag, such as {%s}",
					lock, key, keys.Encode(key))
			}
			base = "{" + lock + "}"
		}
		all = append(all, lock, base+":fence", base+":interest")
	}
	return all, nil
}

// channels returns the names of the channels in which the releases of business keys are announced.
func channels(names []string, name func(string) string) []string {
	all := make([]string, len(names))
	for i, key := range names {
		all[i] = name(key)
	}
	return all
}
