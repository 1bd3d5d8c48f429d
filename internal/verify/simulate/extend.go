package simulate

import (
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/quorum"
)

// tick checks a lease, and extends it when that is due.
func (s *simulation) tick(i int16) {
	sl := &s.slots[i]
	if !s.alive(i) && sl.phase != holding {
		return
	}
	elapsed := sl.watch.total
	if elapsed >= sl.nextTick && sl.extension == 0 {
		s.extend(i, elapsed)
		if sl.phase != holding {
			return
		}
	}
	s.push(event{at: s.now + s.toTick(sl, elapsed), kind: tick, slot: i, ref: sl.attempt})
}

// extend sends a renewal to all nodes. It commits as well: it takes the tokens of the commit along, or what the node
// has if that is more.
func (s *simulation) extend(i int16, elapsed int64) {
	sl := &s.slots[i]
	tokens := sl.tokens
	if tokens == nil || s.Variant.immediate() {
		tokens = sl.acq.Commit().Tokens
	}
	s.result.Extensions++
	s.numbers++
	sl.extension, sl.extendedFrom = s.numbers, elapsed
	sl.poll, sl.polled, sl.lost = quorum.NewPoll(len(s.nodes)), 0, 0
	for n := range s.nodes {
		sl.raise(n, tokens)
		if position := sl.position(n); position >= 0 {
			sl.raise(n, sl.acq.Counters(position))
			if sl.acq.Elsewhere(position) && s.Variant != RetakeExpired {
				sl.polled, sl.lost = sl.polled|1<<n, sl.lost|1<<n
				sl.poll.No()
				continue
			}
		}
		if !s.transmit(i, n, extend, sl.extension) {
			sl.polled |= 1 << n
			sl.poll.Failed()
			sl.missing |= 1 << n
		}
	}
	sl.nextTick = elapsed + sl.ttl/3
	s.reclaimLater(i)
	s.push(event{at: s.now + micros(s.Timeout), kind: extendOver, slot: i, ref: sl.attempt, arg: sl.extension})
	s.extended(i)
}

// extendOver handles the timeout of an extension.
func (s *simulation) extendOver(i int16, number uint32) {
	sl := &s.slots[i]
	if sl.phase != holding || sl.extension != number {
		return
	}
	for n := range s.nodes {
		if sl.polled&(1<<n) == 0 {
			sl.polled |= 1 << n
			sl.poll.Failed()
			sl.missing |= 1 << n
		}
	}
	s.reclaimLater(i)
	s.extended(i)
}

// extended handles the outcome of an extension.
func (s *simulation) extended(i int16) {
	sl := &s.slots[i]
	if sl.phase != holding || sl.extension == 0 {
		return
	}
	switch sl.poll.Outcome() {
	case quorum.Done:
		if !s.alive(i) && sl.phase != holding {
			return
		}
		sl.until = max(sl.until, sl.extendedFrom+micros(quorum.Validity(time.Duration(sl.ttl)*time.Microsecond)))
		sl.extension = 0
		s.enter(i)
		s.retake(i)
	case quorum.Lost:
		s.result.Lost++
		s.end(i)
	case quorum.Unknown:
		sl.nextTick = s.look(sl) + sl.ttl/20
		sl.extension = 0
	case quorum.Open:
	}
}

// retake asks for the lock on the nodes that have lost it or had it for another holder, after an extension that a
// majority has made without them. It is an acquire that proposes the committed token.
func (s *simulation) retake(i int16) {
	sl := &s.slots[i]
	if sl.tokens == nil {
		return
	}
	for n := range s.nodes {
		if sl.lost&(1<<n) != 0 && s.transmit(i, n, retake, 0) {
			s.result.Retakes++
		}
	}
	sl.lost = 0
}

// retaken handles the answer to a retake.
func (s *simulation) retaken(sl *slot, m *message) {
	sl.missing &^= 1 << m.node
	if position := sl.position(int(m.node)); m.ok && position >= 0 {
		s.result.Retaken++
		sl.acq.Retaken(position, slices.Clone(m.tokens[:sl.keys]))
		sl.instants[m.node] = m.instant
	}
	if s.Variant == RetakeExpired && sl.extension == m.number && sl.polled&(1<<m.node) == 0 {
		sl.polled |= 1 << m.node
		if m.ok {
			sl.poll.Yes()
		} else {
			sl.poll.No()
		}
		s.extended(m.slot)
	}
}

// handOff ends the turn of a holder: the lease is handed off to the next holder of the process, or released.
func (s *simulation) handOff(i int16) {
	sl := &s.slots[i]
	if !s.alive(i) {
		if sl.phase == holding {
			s.push(event{at: s.now + millisecond + s.after(micros(s.Hold)), kind: handOff, slot: i, ref: sl.attempt})
		}
		return
	}
	if sl.tokens == nil && s.next()&3 != 0 { // wait for the token, unless it is not needed
		s.push(event{at: s.now + millisecond + s.after(micros(s.Hold)), kind: handOff, slot: i, ref: sl.attempt})
		return
	}
	if sl.tokens != nil && sl.handOffs > 0 && sl.used < sl.block && sl.watch.total < sl.until*2/3 {
		sl.handOffs--
		s.give(sl)
		s.push(event{at: s.now + s.after(micros(s.Hold)), kind: handOff, slot: i, ref: sl.attempt})
		return
	}
	if sl.tokens == nil {
		s.result.Unfenced++
	}
	s.end(i)
}

// end releases on all nodes, whatever they have answered. Where the answer to the acquire is still out, it is awaited.
func (s *simulation) end(i int16) {
	sl := &s.slots[i]
	if sl.phase == holding {
		s.leave(i)
	}
	sl.phase = releasing
	sl.poll, sl.polled = quorum.NewPoll(len(s.nodes)), 0
	for n := range s.nodes {
		switch {
		case sl.acquired&(1<<n) == 0:
			at := s.take()
			s.all[at] = message{
				request: release, keys: uint8(sl.keys), node: uint8(n), slot: i, attempt: sl.attempt,
				process: s.clients[sl.client].process, key: sl.key, owner: sl.owner,
			}
			s.push(event{at: max(sl.deadline, s.now+1), kind: lateRelease, node: uint8(n), ref: at, slot: i})
		case !s.transmit(i, n, release, 0):
			sl.polled |= 1 << n
			sl.poll.Failed()
		}
	}
	if sl.poll.Outcome() != quorum.Open {
		s.again(i)
		return
	}
	s.push(event{at: s.now + micros(s.Timeout), kind: begin, slot: i, ref: sl.attempt})
}

// again schedules the next attempt of a slot.
func (s *simulation) again(i int16) {
	sl := &s.slots[i]
	sl.phase = idle
	wait := s.after(micros(s.Think))
	switch {
	case sl.unreachable:
		wait += s.after(50 * micros(s.Think))
	case sl.tokens == nil:
		wait += s.after(4 * micros(s.Think))
	}
	s.push(event{at: s.now + wait, kind: begin, slot: i, ref: sl.attempt})
}
