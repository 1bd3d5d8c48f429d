package locking

import "time"

// stopwatch measures the age of a lease by the faster of two clocks, so that no lease seems younger than it is: the
// monotonic clock stands still while the machine is suspended, and the wall clock may be set back.
type stopwatch struct {
	read  func() (now, wall time.Time) // nil for the clocks of this machine
	last  time.Time                    // with a monotonic reading
	lastW time.Time                    // without
	total time.Duration
}

// instant is when a lease begins.
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

// elapsed returns the time since the start. Between two calls it grows by the progress of the faster clock.
func (s *stopwatch) elapsed() time.Duration {
	now, wall := s.clocks()
	s.total += max(now.Sub(s.last), wall.Sub(s.lastW), 0)
	s.last, s.lastW = now, wall
	return s.total
}

// gotAhead returns how much further the wall clock has moved than the monotonic clock since the last reading.
func (s *stopwatch) gotAhead() time.Duration {
	last, total := s.last, s.total
	return s.elapsed() - total - s.last.Sub(last)
}
