package simulate

import (
	"slices"

	"github.com/railtoken/railtoken/internal/quorum"
)

// commit takes the next step towards a lease's tokens.
func (s *simulation) commit(i int16) {
	sl := &s.slots[i]
	if sl.tokens != nil {
		return
	}
	step := quorum.Step{Done: true}
	if s.Variant.immediate() {
		step.Tokens = s.unproven(sl)
	} else {
		step = sl.acq.Commit()
	}
	if step.Lost {
		s.result.Lost++
		s.end(i)
		return
	}
	if step.Done {
		if !s.alive(i) {
			return
		}
		sl.tokens = step.Tokens
		s.result.Committed++
		if sl.extra {
			s.result.ExtraRound++
		} else {
			s.result.OneRound++
		}
		s.committed(sl)
		s.give(sl)
		return
	}
	if len(step.Renew) == 0 || !s.alive(i) {
		return
	}
	sl.extra = true
	s.numbers++
	number := s.numbers
	for _, position := range step.Renew {
		n := position
		if s.Variant == AnsweringQuorum {
			n = slices.Index(sl.index[:len(s.nodes)], int8(position))
		}
		sl.raise(n, step.Tokens)
		sl.acq.Renewing(position)
		sl.renewals[n] = number
		if !s.transmit(i, n, renew, number) {
			sl.renewals[n] = number // its time-out tells
		}
	}
	s.push(event{at: s.now + micros(s.Timeout), kind: renewOver, slot: i, ref: sl.attempt, arg: number})
}

// raise records the tokens that a renewal sends to a node. They never decrease, so that the last renewal to arrive is
// no loss.
func (sl *slot) raise(n int, tokens []int64) {
	for k, t := range tokens {
		sl.sent[n][k] = max(sl.sent[n][k], t)
	}
}

// renewOver handles the timeout of a commit's renewals.
func (s *simulation) renewOver(i int16, number uint32) {
	sl := &s.slots[i]
	some := false
	for n := range s.nodes {
		if sl.renewals[n] == number {
			sl.renewals[n], some = 0, true
			sl.acq.RenewFailed(sl.position(n))
		}
	}
	if some && sl.phase == holding {
		s.commit(i)
	}
}
