package locking

import "time"

// stopwatch measures how long ago a lease began by the faster of two clocks: the monotonic one, which stands still while a
// machine is suspended, and the wall clock, which goes on but may be set back. A lease that is measured so is never
// thought to be younger than it is.
type stopwatch struct {
	now   func() time.Time // with a monotonic reading
	wall  func() time.Time // without
	last  time.Time
	lastW time.Time
	total time.Duration
}

// newStopwatch returns a stopwatch that starts now.
func newStopwatch() stopwatch {
	return startStopwatch(time.Now, func() time.Time { return time.Now().Round(0) })
}

func startStopwatch(now, wall func() time.Time) stopwatch {
	return stopwatch{now: now, wall: wall, last: now(), lastW: wall()}
}

// elapsed returns the time since the start. It never goes back: from one call to the next it grows by as much as the
// clock that moved further.
func (s *stopwatch) elapsed() time.Duration {
	now, wall := s.now(), s.wall()
	s.total += max(now.Sub(s.last), wall.Sub(s.lastW), 0)
	s.last, s.lastW = now, wall
	return s.total
}
