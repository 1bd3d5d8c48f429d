package simulate

import (
	"time"

	"github.com/railtoken/railtoken/internal/quorum"
)

// answering returns the acquisition of a client that counts only the nodes that answer.
func (s *simulation) answering(sl *slot) {
	all := uint16(1)<<len(s.nodes) - 1
	if sl.acquired != all {
		return
	}
	count := 0
	for n := range s.nodes {
		sl.index[n] = -1
		if sl.raw[n].attempt != 0 {
			sl.index[n] = int8(count)
			count++
		}
	}
	if count == 0 {
		sl.acq = quorum.New(1)
		sl.acq.Failed(0)
		return
	}
	sl.acq = quorum.New(count)
	for n := range s.nodes {
		switch position := sl.position(n); {
		case position < 0:
		case sl.raw[n].ok:
			s.granted(sl, n, position)
		default:
			sl.acq.Held(position, owners[0])
		}
	}
}

// decide ends an acquisition whose verdict is certain.
func (s *simulation) decide(i int16) {
	sl := &s.slots[i]
	if s.Variant == AnsweringQuorum {
		s.answering(sl)
	}
	switch sl.acq.Verdict() {
	case quorum.Undecided:
	case quorum.Won:
		s.won(i)
	case quorum.Unreachable:
		s.result.Unreachable++
		sl.unreachable = true
		s.end(i)
	default:
		s.result.Conflicts++
		s.end(i)
	}
}

// won starts a lease.
func (s *simulation) won(i int16) {
	sl := &s.slots[i]
	sl.until = micros(quorum.Validity(time.Duration(sl.ttl) * time.Microsecond))
	elapsed := s.look(sl)
	if s.Variant != UncheckedValidity && elapsed >= sl.until || s.Variant != StaleProposals && elapsed >= s.proposalSpan {
		s.result.Lost++
		s.end(i)
		return
	}
	sl.phase = holding
	s.enter(i)
	hold := s.after(micros(s.Hold))
	sl.long = s.chance(s.odds.long)
	if sl.long {
		hold = s.below(sl.ttl * 5 / 2)
	}
	sl.handOffs = 0
	if sl.block > 1 && s.next()&3 == 0 {
		sl.handOffs = s.below(sl.block)
	}
	s.push(event{at: s.now + hold, kind: handOff, slot: i, ref: sl.attempt})
	sl.nextTick = sl.ttl / 3
	s.reclaimLater(i)
	s.push(event{at: s.now + s.toTick(sl, elapsed), kind: tick, slot: i, ref: sl.attempt})
	s.commit(i)
}

// toTick returns when a lease looks at its clocks next.
func (s *simulation) toTick(sl *slot, elapsed int64) int64 {
	return max(min(sl.nextTick-elapsed, sl.until-elapsed, second), 1)
}

// look returns how long ago a lease's attempt began, by its own clocks.
func (s *simulation) look(sl *slot) int64 {
	m := &s.clients[sl.client].machine
	sl.missed = sl.missed || s.misses(sl)
	sl.looked = s.now
	sl.honest.look(m, s.now, Correct)
	return sl.watch.look(m, s.now, s.Variant)
}

// alive reports whether a lease is valid, and ends it otherwise.
func (s *simulation) alive(i int16) bool {
	sl := &s.slots[i]
	if elapsed := s.look(sl); elapsed < sl.until || s.Variant == UncheckedValidity {
		return true
	}
	if s.Variant == RetakeExpired {
		return false
	}
	s.result.Lost++
	s.end(i)
	return false
}
