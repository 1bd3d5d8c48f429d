package leasing

import "time"

// Stopwatch measures the age of a lease as [Since] does, but from reading to reading: so a suspension counts even after
// the wall clock was set back.
type Stopwatch struct {
	read  func() (now, wall time.Time) // nil for the clocks of this machine
	last  time.Time                    // with a monotonic reading
	lastW time.Time                    // without
	total time.Duration
}

// StartStopwatch returns a Stopwatch that starts now. read reads both clocks; nil for those of this machine.
func StartStopwatch(read func() (now, wall time.Time)) Stopwatch {
	s := Stopwatch{read: read}
	s.last, s.lastW = s.clocks()
	return s
}

// clocks returns the time with and without a monotonic reading.
func (s *Stopwatch) clocks() (now, wall time.Time) {
	if s.read != nil {
		return s.read()
	}
	now = time.Now()
	return now, now.Round(0)
}

// Last returns the time of the last reading, or of the start.
func (s *Stopwatch) Last() time.Time { return s.last }

// Elapsed returns the time since the start. Between two calls it grows by the progress of the faster clock.
func (s *Stopwatch) Elapsed() time.Duration {
	now, wall := s.clocks()
	s.total += max(now.Sub(s.last), wall.Sub(s.lastW), 0)
	s.last, s.lastW = now, wall
	return s.total
}

// GotAhead returns how much further the wall clock has moved than the monotonic clock since the last reading.
func (s *Stopwatch) GotAhead() time.Duration {
	last, total := s.last, s.total
	return s.Elapsed() - total - s.last.Sub(last)
}
