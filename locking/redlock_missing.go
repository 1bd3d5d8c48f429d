package locking

import (
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/quorum"
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
	grants map[*redlockGrant]struct{}
	busy   bool // a round is under way, or due
	size   int  // how many grants the next round takes
	pause  time.Duration
	open   int // unanswered calls of the round, and one for the round itself
	well   bool
}

// add adds a grant whose lock the node misses.
func (m *missing) add(g *redlockGrant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.grants == nil {
		m.grants = map[*redlockGrant]struct{}{}
	}
	m.grants[g] = struct{}{}
	if !m.busy {
		m.busy, m.size, m.pause = true, 1, missingPause
		time.AfterFunc(m.pause, m.round)
	}
}

// drop removes a grant.
func (m *missing) drop(g *redlockGrant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.grants, g)
}

// round asks the node for the locks of some grants.
func (m *missing) round() {
	m.mu.Lock()
	var some []*redlockGrant
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

// failed records that a call to node i has failed, so that its lock may be missing there. The caller holds the mutex.
func (g *redlockGrant) failed(i int) {
	g.nodes[i].missing = true
	g.seekMissing()
}

// seekMissing has missing locks taken once the node answers, if the grant is a lease. The caller holds the mutex.
func (g *redlockGrant) seekMissing() {
	if g.ended || g.rules.Verdict() != quorum.Won {
		return
	}
	for i := range g.nodes {
		if n := &g.nodes[i]; n.missing && !n.sought {
			n.sought = true
			g.redlock.nodes[i].missing.add(g)
		}
	}
}

// stopSeeking ends what seekMissing has begun on node i. The caller holds the mutex.
func (g *redlockGrant) stopSeeking(i int) {
	n := &g.nodes[i]
	if n.missing = false; n.sought {
		n.sought = false
		g.redlock.nodes[i].missing.drop(g)
	}
}

// stopSeekingAll is called when the grant has ended. The caller holds the mutex.
func (g *redlockGrant) stopSeekingAll() {
	for i := range g.nodes {
		g.stopSeeking(i)
	}
}

// retakeMissing renews the lock on node i, or takes it if the node is not known to have it, as retake does. It calls
// then with whether the node is well. After an error then is not called, because the node may not be asked now.
func (g *redlockGrant) retakeMissing(i int, then func(well bool)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ended, g.redlock.closing.Load(), leasing.Since(g.extended) >= quorum.Validity(g.lasts):
		g.stopSeeking(i)
		go then(false)
		return nil
	case g.tokens == nil, g.taking(i): // an answer is due that shows more
		go then(false)
		return nil
	}
	answered := func(err error) {
		if permanent(err) { // only the next renewal asks again
			g.stopSeeking(i)
		}
		go then(err == nil || permanent(err))
	}
	if g.rules.Counters(i) != nil {
		return g.renew(new(pipeline.Call), i, g.renewCommand(g.tokens, g.lasts), g.tokens, g.lasts,
			func(_ int, _ bool, err error) { answered(err) }) // what it has lost is taken by the next round
	}
	return g.askAgain(i, g.lasts, func(err error) {
		if err == nil { // granted, or another owner has it, whom the next renewal asks again
			g.stopSeeking(i)
		}
		answered(err)
	})
}
