package asynqwire

import "time"

const (
	// leaseTerm is how long asynq's lease on a task lasts, which each heartbeat of its server extends, every 5 s.
	leaseTerm = 30 * time.Second
	// SilentAfter is how long a server may be without a heartbeat.
	SilentAfter = 15 * time.Second
)

// Silence returns how long ago the server that runs a task was heard of, by the end of asynq's lease on the task; 0 without one.
func Silence(lease, now time.Time) time.Duration {
	if lease.IsZero() {
		return 0
	}
	return now.Sub(lease.Add(-leaseTerm))
}
