package simulate

import (
	"fmt"
	"slices"
)

// span is a block of committed tokens.
type span struct{ low, high int64 }

// held is a committed lease as seen by the nodes.
type held struct {
	span
	nodes    uint16 // the nodes that held the token
	instants [maxNodes]uint64
}

// recent is how many leases of a key are compared with a new one node by node. Older ones are complete before it
// begins, which the floor checks.
const recent = 24

// history records what happened to one key.
type history struct {
	blocks   []span // in rising order
	last     [recent]held
	next     int
	floor    int64 // the largest token whose commit is complete
	returned int64 // the last token that a holder was given
	valid    []int16
}

// violation records that a promise was broken.
func (s *simulation) violation(count *int, format string, args ...any) {
	*count++
	if s.result.First == "" {
		s.result.First = fmt.Sprintf("%v after the start: ", moment(s.now).Sub(moment(0))) + fmt.Sprintf(format, args...)
	}
}

// committed checks the committed tokens of a lease.
func (s *simulation) committed(sl *slot) {
	for k, key := range sl.key[:sl.keys] {
		h := &s.histories[key]
		now := held{span: span{sl.tokens[k] - sl.block + 1, sl.tokens[k]}}
		for i := range s.nodes {
			position := sl.position(i)
			if position < 0 {
				continue
			}
			if c := sl.acq.Counters(position); c != nil && slices.Equal(c, sl.tokens) {
				now.nodes |= 1 << i
				now.instants[i] = sl.instants[i]
			}
		}
		h.insert(s, key, now.span)
		if now.low <= sl.floor[k] {
			s.violation(&s.result.OutOfOrder, "key %d: tokens %d-%d were committed, %d was before the request was sent", key,
				now.low, now.high, sl.floor[k])
		}
		for i := range h.last {
			s.compare(key, &h.last[i], &now)
		}
		h.last[h.next] = now
		h.next = (h.next + 1) % recent
		h.floor = max(h.floor, now.high)
	}
}

// insert adds a block, and checks that no other block has one of its tokens.
func (h *history) insert(s *simulation, key uint16, b span) {
	i := len(h.blocks)
	for i > 0 && h.blocks[i-1].low > b.low {
		i--
	}
	if i > 0 && h.blocks[i-1].high >= b.low {
		s.violation(&s.result.Duplicates, "key %d: tokens %d-%d and %d-%d",
			key, h.blocks[i-1].low, h.blocks[i-1].high, b.low, b.high)
	} else if i < len(h.blocks) && h.blocks[i].low <= b.high {
		s.violation(&s.result.Duplicates, "key %d: tokens %d-%d and %d-%d",
			key, h.blocks[i].low, h.blocks[i].high, b.low, b.high)
	}
	h.blocks = slices.Insert(h.blocks, i, b)
}

// compare checks the order of two leases on their common nodes.
func (s *simulation) compare(key uint16, a, b *held) {
	shared := a.nodes & b.nodes
	if a.nodes == 0 || s.Variant.immediate() {
		return
	}
	if shared == 0 {
		s.violation(&s.result.OutOfOrder, "key %d: tokens %d-%d and %d-%d have no node in common",
			key, a.low, a.high, b.low, b.high)
	}
	for i := range s.nodes {
		if shared&(1<<i) == 0 {
			continue
		}
		if before := a.instants[i] < b.instants[i]; before && a.high >= b.low || !before && b.high >= a.low {
			s.violation(&s.result.OutOfOrder, "key %d: node %d held tokens %d-%d at %d and %d-%d at %d", key, i, a.low, a.high,
				a.instants[i], b.low, b.high, b.instants[i])
			return
		}
	}
}

// give checks the next token of a lease's block when the holder gets it.
func (s *simulation) give(sl *slot) {
	excused := s.excused(sl)
	for k, key := range sl.key[:sl.keys] {
		h := &s.histories[key]
		token := sl.tokens[k] - sl.block + 1 + sl.used
		if excused {
			continue
		}
		if token <= h.returned {
			s.violation(&s.result.OutOfOrder, "key %d: token %d was returned after %d", key, token, h.returned)
		}
		h.returned = max(h.returned, token)
	}
	sl.used++
	s.result.Tokens++
}

// enter records that the holder trusts its lease, and checks that no other holder trusts one of the same keys.
func (s *simulation) enter(i int16) {
	sl := &s.slots[i]
	for _, key := range sl.key[:sl.keys] {
		h := &s.histories[key]
		for _, other := range h.valid {
			o := &s.slots[other]
			if other == i || !s.trusted(o) {
				continue
			}
			if s.excused(o) || s.excused(sl) {
				s.result.Excusable++
				continue
			}
			s.violation(&s.result.Overlaps, "key %d: slots %d and %d both trust their lease", key, other, i)
		}
		if !slices.Contains(h.valid, i) {
			h.valid = append(h.valid, i)
		}
	}
}

// leave records that the holder no longer trusts its lease.
func (s *simulation) leave(i int16) {
	sl := &s.slots[i]
	for _, key := range sl.key[:sl.keys] {
		h := &s.histories[key]
		if at := slices.Index(h.valid, i); at >= 0 {
			h.valid = slices.Delete(h.valid, at, at+1)
		}
	}
}

// trusted reports whether a lease's holder would trust it if it looked at its clocks now.
func (s *simulation) trusted(sl *slot) bool {
	return s.Variant == UncheckedValidity || sl.watch.peek(&s.clients[sl.client].machine, s.now, s.Variant) < sl.until
}

// excused reports whether the clocks have broken the assumptions of a lease: a node's clock was set forward, or this
// machine's two clocks have both missed a part of the time.
func (s *simulation) excused(sl *slot) bool {
	if s.nodeJumped >= sl.began {
		return s.excuse(sl)
	}
	if sl.missed || s.misses(sl) {
		return s.excuse(sl)
	}
	return false
}

// misses reports whether both clocks of a lease's machine have missed a part of the time since the lease last looked at
// them.
func (s *simulation) misses(sl *slot) bool {
	passed := s.now - sl.looked
	measured := sl.honest.peek(&s.clients[sl.client].machine, s.now, Correct) - sl.honest.total
	return measured < passed-passed*s.ClientDrift/1_000_000-2
}

func (s *simulation) excuse(sl *slot) bool {
	if !sl.excused {
		sl.excused = true
		s.result.Excused++
	}
	return true
}
