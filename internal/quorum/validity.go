package quorum

import "time"

const (
	driftFixed = 2 * time.Millisecond
	driftShare = 100 // 1/100 of the TTL
)

// Validity returns how long a lock with this TTL may be trusted, counted from before its first request was sent: the
// TTL minus the drift between this machine's clock and those of the servers ("Distributed Locks with Redis", section
// "Safety arguments").
func Validity(ttl time.Duration) time.Duration {
	return ttl - ttl/driftShare - driftFixed
}
