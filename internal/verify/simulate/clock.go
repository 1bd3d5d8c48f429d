package simulate

import "time"

// epoch is the common part of the wall clocks of all machines at the start, in microseconds since 1970. It is in 2026.
const epoch int64 = 1_780_000_000_000_000

// machine has a monotonic clock and a wall clock, both of them inaccurate.
type machine struct {
	drift   int64 // of both clocks, in millionths
	phase   int64 // true time at which the drift changes direction, see age
	offset  int64 // of the wall clock
	stopped int64 // how long the monotonic clock has stood still, without the last suspension
	from    int64 // the last suspension
	to      int64
}

// turn is how long a clock drifts in one direction, so that the clocks of all machines stay close to each other.
const turn = 3 * second

// age returns the true time as measured by a clock with the machine's drift.
func (m *machine) age(now int64) int64 {
	if m.drift == 0 {
		return now
	}
	at := (now + m.phase) % (2 * turn)
	return now + (min(at, 2*turn-at)-turn/2)*m.drift/1_000_000
}

// wall returns the wall clock.
func (m *machine) wall(now int64) int64 { return epoch + m.age(now) + m.offset }

// mono returns the monotonic clock, which stands still while the machine is suspended.
func (m *machine) mono(now int64) int64 {
	return m.age(now) - m.stopped - max(min(now, m.to)-m.from, 0)
}

// suspend stops the machine until a time.
func (m *machine) suspend(now, until int64) {
	m.stopped += m.to - m.from
	m.from, m.to = now, until
}

// stopwatch measures like leasing.Stopwatch: between two looks by the faster clock.
type stopwatch struct{ mono, wall, total int64 }

func (s *stopwatch) start(m *machine, now int64) {
	*s = stopwatch{mono: m.mono(now), wall: m.wall(now)}
}

// peek returns what a look would return, without looking.
func (s *stopwatch) peek(m *machine, now int64, with Variant) int64 {
	mono, wall := m.mono(now)-s.mono, m.wall(now)-s.wall
	switch with {
	case MonotonicOnly:
		return s.total + mono
	case WallOnly:
		return s.total + wall
	default:
		return s.total + max(mono, wall, 0)
	}
}

func (s *stopwatch) look(m *machine, now int64, with Variant) int64 {
	s.total = s.peek(m, now, with)
	s.mono, s.wall = m.mono(now), m.wall(now)
	return s.total
}

// micros returns a duration in the unit of virtual time.
func micros(d time.Duration) int64 { return d.Microseconds() }

// moment returns a clock's reading as a time.
func moment(us int64) time.Time { return time.UnixMicro(us).UTC() }
