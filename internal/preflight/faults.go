package preflight

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/railtoken/railtoken/internal/rediswire"
)

// Kind is the kind of a [Fault].
type Kind string

// The kinds of faults that INFO shows.
const (
	Old         Kind = "version"
	Replica     Kind = "role"
	ClusterNode Kind = "cluster"
	Evicts      Kind = "eviction"
	Twin        Kind = "twin"
)

// Fault is why a Redis is not fit for tasks and locks.
type Fault struct {
	Kind Kind
	// What continues a text that names the server, and Remedy says what to do.
	What, Remedy string
}

// faultError is a [Fault] as an error.
type faultError struct{ Fault }

func (e faultError) Error() string { return e.What + ": " + e.Remedy }

// evicts reports whether an error says that a Redis may evict keys.
func evicts(err error) bool {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return slices.ContainsFunc(joined.Unwrap(), evicts)
	}
	fault, ok := errors.AsType[faultError](err)
	return ok && fault.Kind == Evicts
}

// ParseInfo returns the fields of an INFO reply.
func ParseInfo(info string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// Faults returns why a Redis with these fields of INFO is not fit; isCluster says that its client is one of a Cluster.
// What the fields lack is assumed to be right.
func Faults(info map[string]string, isCluster bool) (all []Fault) {
	add := func(kind Kind, what, remedy string) { all = append(all, Fault{kind, what, remedy}) }
	if v := info["redis_version"]; v != "" && olderThan(v, 6, 2) {
		what := "has version " + v
		if other := Untested(info); other != "" {
			what += " (" + other + ")"
		}
		add(Old, what, "use 6.2 or later")
	}
	if info["role"] == "active-replica" {
		add(Twin, "is one of two masters that both accept writes (active-replica of KeyDB)",
			"turn active-replica off: while the two do not see each other, each gives a key to a holder of its own")
	}
	if info["role"] == "slave" {
		add(Replica, "is a replica", "give the address of its master, or use Sentinel")
	}
	if info["cluster_enabled"] == "1" && !isCluster {
		add(ClusterNode, "is a node of a Redis Cluster",
			"use redis.NewClusterClient, or RAILTOKEN_REDIS_CLUSTER (RAILTOKEN_LOCK_REDIS_CLUSTER)")
	}
	limit, _ := strconv.ParseInt(info["maxmemory"], 10, 64)
	if policy := info["maxmemory_policy"]; rediswire.MayEvict(limit, policy) {
		add(Evicts, "may evict tasks and locks when its memory is full (maxmemory-policy "+policy+")", rediswire.EvictionRemedy)
	}
	return all
}

// Untested returns the name of a server that answers as Redis does, and that is neither Redis nor Valkey, from its fields of INFO; "" if none
// shows one.
func Untested(info map[string]string) string {
	switch {
	case info["dragonfly_version"] != "":
		return "Dragonfly " + info["dragonfly_version"]
	case info["kvrocks_version"] != "":
		return "Kvrocks " + info["kvrocks_version"]
	case info["mvcc_depth"] != "" || strings.HasSuffix(info["executable"], "keydb-server"):
		return "KeyDB " + info["redis_version"]
	}
	return ""
}
