package quorum

import "time"

const (
	driftFixed = 2 * time.Millisecond
	driftShare = 100 // 1/100 of the TTL
)

// Validity returns how long a lock with that TTL may be trusted, counted from before its first request was sent: the
// TTL less the drift between this clock and the servers' ("Distributed Locks with Redis", section "Safety arguments").
func Validity(ttl time.Duration) time.Duration {
	return ttl - ttl/driftShare - driftFixed
}
