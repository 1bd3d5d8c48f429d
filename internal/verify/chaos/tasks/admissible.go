package tasks

import "time"

const (
	// gone is how long a master has not answered when the sentinels replace it.
	gone = 2 * time.Second
	// failovers is the sentinels' failover-timeout: they start none within twice that time after the last one.
	failovers = 5 * time.Second
	// stepped is by how much clocks step. It is less than what a worker may be silent before it counts as dead.
	stepped = 4 * time.Second
)

// Health is what the nemesis has done to the servers, and until when it counts. One Redis has one clock, by which locks end and tokens
// grow. Where a failover loses the last tokens, the clock is what makes them grow, so it is right then, and was since they were given.
type Health struct {
	failing bool          // a failover goes on
	next    time.Duration // when the sentinels start another one
	busy    time.Duration // until when the master does not answer, or refuses writes
	clock   time.Duration // until when tokens are ahead of the clocks
}

// Admit reports whether an event may happen now, and notes that it does. Replaced ends a failover.
func (h *Health) Admit(e Event, now time.Duration) bool {
	switch e.Fault {
	case Switch, KillMaster, StallMaster:
		if h.failing || h.next > now || h.busy > now || h.clock > now {
			return false
		}
		h.failing, h.next = true, now+2*failovers
	case Step:
		if h.failing || h.clock > now {
			return false
		}
		h.clock = now + e.Lasts + stepped + TTL
	case PauseMaster, FullMaster:
		if h.failing || h.busy > now {
			return false
		}
		h.busy = now + e.Lasts
	default:
	}
	return true
}

// Replaced notes that a failover has ended.
func (h *Health) Replaced() { h.failing = false }
