package locking

import "time"

// stopwatch measures how long ago a lease began by the faster of two clocks: the monotonic one, which stands still
// while a machine is suspended, and the wall clock, which goes on but may be set back. So no lease seems younger than
// it is.
type stopwatch struct {
	read  func() (now, wall time.Time) // nil for the clocks of this machine
	last  time.Time                    // with a monotonic reading
	lastW time.Time                    // without
	total time.Duration
}

// instant is a moment from which a lease is measured.
type instant struct {
	watch      stopwatch
	suspension *suspensionDetector // of the Locker
}

// startStopwatch returns a stopwatch that starts now.
func startStopwatch(read func() (now, wall time.Time)) stopwatch {
	s := stopwatch{read: read}
	s.last, s.lastW = s.clocks()
	return s
}

// clocks returns the time with and without a monotonic reading.
func (s *stopwatch) clocks() (now, wall time.Time) {
	if s.read != nil {
		return s.read()
	}
	now = time.Now()
	return now, now.Round(0)
}

// elapsed returns the time since the start. From one call to the next it grows by as much as the clock that moved
// further.
func (s *stopwatch) elapsed() time.Duration {
	now, wall := s.clocks()
	s.total += max(now.Sub(s.last), wall.Sub(s.lastW), 0)
	s.last, s.lastW = now, wall
	return s.total
}

// gotAhead returns by how much the wall clock has moved further than the monotonic one since the last reading.
func (s *stopwatch) gotAhead() time.Duration {
	last, total := s.last, s.total
	return s.elapsed() - total - s.last.Sub(last)
}
