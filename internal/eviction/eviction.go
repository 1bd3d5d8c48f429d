// Package eviction tells whether a Redis may delete locks to make room.
package eviction

import (
	"strconv"
	"strings"
)

// Remedy says what an operator does about it.
const Remedy = "set maxmemory-policy noeviction there"

// May reports whether a Redis with these fields of INFO memory may delete keys when its memory is full. Fields that it
// does not report are assumed to be right.
func May(maxMemory int64, policy string) bool {
	return maxMemory > 0 && policy != "" && policy != "noeviction"
}

// Policy returns the policy of a Redis that may evict keys, from its reply to INFO memory; empty if it evicts none.
func Policy(info string) string {
	var limit int64
	policy := ""
	for line := range strings.Lines(info) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
		case "maxmemory":
			limit, _ = strconv.ParseInt(value, 10, 64)
		case "maxmemory_policy":
			policy = value
		}
	}
	if May(limit, policy) {
		return policy
	}
	return ""
}
