package quorum

import "sync/atomic"

// Clock proposes fencing tokens. It is a hybrid logical clock: it follows the wall clock in microseconds, and never
// repeats a value or goes back. The zero value is ready for use. It is safe for concurrent use.
type Clock struct{ last atomic.Int64 }

// Propose returns the last token of a new block of size tokens, which are larger than all that this clock has proposed
// or seen.
func (c *Clock) Propose(wallMicros, size int64) (top int64) {
	for {
		last := c.last.Load()
		top = max(last+1, wallMicros) + size - 1
		if c.last.CompareAndSwap(last, top) {
			return top
		}
	}
}

// See raises the clock to the counter of a node. It ignores counters above most, which are wrong, and must not spread
// from one key to all others.
func (c *Clock) See(counter, most int64) {
	for counter <= most {
		last := c.last.Load()
		if counter <= last || c.last.CompareAndSwap(last, counter) {
			return
		}
	}
}

// Last returns the largest token that this clock has proposed or seen, or 0 if there is none.
func (c *Clock) Last() int64 { return c.last.Load() }
