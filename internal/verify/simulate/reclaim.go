package simulate

// Pauses before nodes that have failed are asked for the lock of a lease.
const (
	firstReclaim = 5 * millisecond
	lastReclaim  = 100 * millisecond
)

// reclaimLater has nodes that have failed asked for the lock of a lease, because it may be missing there.
func (s *simulation) reclaimLater(i int16) {
	sl := &s.slots[i]
	if s.RetakeAtTurn || sl.missing == 0 || sl.pause != 0 || sl.phase != holding {
		return
	}
	sl.pause = firstReclaim
	s.push(event{at: s.now + sl.pause, kind: reclaim, slot: i, ref: sl.attempt})
}

// reclaim asks these nodes, until each has answered or the lease is over.
func (s *simulation) reclaim(i int16) {
	sl := &s.slots[i]
	if sl.missing == 0 || s.look(sl) >= sl.until {
		sl.pause = 0
		return
	}
	for n := range s.nodes {
		switch {
		case sl.tokens == nil || sl.missing&(1<<n) == 0:
		case sl.acq.Counters(n) != nil:
			sl.raise(n, sl.tokens)
			sl.raise(n, sl.acq.Counters(n))
			s.transmit(i, n, extend, 0)
		case s.transmit(i, n, retake, 0):
			s.result.Retakes++
		}
	}
	sl.pause = min(2*sl.pause, lastReclaim)
	s.push(event{at: s.now + sl.pause, kind: reclaim, slot: i, ref: sl.attempt})
}
