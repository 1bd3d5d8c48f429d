// Package lockhook lets the packages of this module see locks as package locking does, without an exported name there.
// Package locking sets its functions.
package lockhook

import "time"

// RedisKeys returns the Redis keys of a business key's lock. name returns that of the lock; nil for the usual one.
var RedisKeys func(key string, name func(key string) string) (Keys, error)

// Keys are the Redis keys of the lock of one business key, all in one slot.
type Keys struct{ Lock, Fence, Notify string }

// Parse returns what the value of a lock says about its holder.
var Parse func(value string) Owner

// Owner is what the value of a lock says about its holder.
type Owner struct {
	// Ours is false if another program has set the lock. Then the rest is zero, and Block is 1.
	Ours  bool
	Label string
	Since time.Time
	Block int64 // how many tokens are reserved
}
