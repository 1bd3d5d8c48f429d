package rediswire

import (
	"strconv"
	"strings"
)

// EvictionRemedy says what an operator does about it.
const EvictionRemedy = "set maxmemory-policy noeviction there"

// MayEvict reports whether a Redis with these fields of INFO memory may delete keys when its memory is full. Fields that it
// does not report are assumed to be right.
func MayEvict(maxMemory int64, policy string) bool {
	return maxMemory > 0 && policy != "" && policy != "noeviction"
}

// EvictionPolicy returns the policy of a Redis that may evict keys, from its reply to INFO memory; empty if it evicts none.
func EvictionPolicy(info string) string {
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
	if MayEvict(limit, policy) {
		return policy
	}
	return ""
}
