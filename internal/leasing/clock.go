package leasing

import "time"

// Since returns how long ago t was, by the faster of two clocks: the monotonic clock stands still while the machine is
// suspended, and the wall clock may be set back. So nothing that ends elsewhere, such as a lock on a server, is taken
// for younger than it is. t is a result of time.Now, or computed from one.
func Since(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// Until returns how long it takes until t, by the faster of two clocks: see [Since].
func Until(t time.Time) time.Duration { return -Since(t) }
