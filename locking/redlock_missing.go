package locking

import (
	"sync"
	"time"
)

// A node that has failed is asked for the locks that it misses after pauses that grow from missingPause to
// longestMissingPause: for one of them until it answers, and then for missingRound at a time.
const (
	missingPause        = 50 * time.Millisecond
	longestMissingPause = time.Second
	missingRound        = 128
)

// missing are the leases whose lock is not known to be on one node, because a call to it has failed. They take the lock
// as soon as the node answers, long before their next renewal. Until then a single other node that loses the lock would
// give the key to a second holder.
type missing struct {
	node int

	mu     sync.Mutex
	grants map[retaker]struct{}
	busy   bool // a round is under way, or due
	size   int  // how many grants the next round takes
	pause  time.Duration
	open   int // unanswered calls of the round, and one for the round itself
	well   bool
}

// retaker is a grant that can take its lock again on a node: see redlockGrant.retakeMissing.
type retaker interface {
	retakeMissing(node int, then func(well bool)) error
}

// add adds a grant whose lock the node misses.
func (m *missing) add(g retaker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.grants == nil {
		m.grants = map[retaker]struct{}{}
	}
	m.grants[g] = struct{}{}
	if !m.busy {
		m.busy, m.size, m.pause = true, 1, missingPause
		time.AfterFunc(m.pause, m.round)
	}
}

// drop removes a grant.
func (m *missing) drop(g retaker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.grants, g)
}

// round asks the node for the locks of some grants.
func (m *missing) round() {
	m.mu.Lock()
	var some []retaker
	for g := range m.grants {
		if some = append(some, g); len(some) == m.size {
			break
		}
	}
	if len(some) == 0 {
		m.busy = false
		m.mu.Unlock()
		return
	}
	m.open, m.well = 1, false
	m.mu.Unlock()
	for _, g := range some {
		m.mu.Lock()
		m.open++
		m.mu.Unlock()
		if err := g.retakeMissing(m.node, m.answered); err != nil {
			m.answered(false)
			break
		}
	}
	m.answered(false)
}

// answered records the outcome of one call. After the last one the next round is due: at once if the node is well.
func (m *missing) answered(well bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.well = m.well || well
	m.open--
	if m.open > 0 {
		return
	}
	if m.well {
		m.size, m.pause = missingRound, missingPause
		go m.round()
		return
	}
	m.size, m.pause = 1, min(2*m.pause, longestMissingPause)
	time.AfterFunc(m.pause, m.round)
}
