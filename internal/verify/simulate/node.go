package simulate

import (
	"fmt"
	"maps"
	"time"

	"github.com/railtoken/railtoken/internal/restartguard"
)

// cell is the state of one key on a node. Times are milliseconds of the node's wall clock, as in Redis.
type cell struct {
	owner        uint64 // 0 when the lock does not exist
	lockUntil    int64
	counter      int64
	counterUntil int64
}

// change is what a cell was before a command changed it.
type change struct {
	at   int64
	key  uint16
	cell cell
}

// node is a server: the scripts of locking/lua as far as they touch locks and fence counters.
type node struct {
	machine
	cells    []cell
	up       bool
	epoch    uint32 // connections of an earlier one are broken
	started  int64  // the wall clock at which the process started
	runID    string
	replID   string
	replID2  string
	promoted int64    // true time of the last failover
	mark     string   // the identity for which a client has vouched
	log      []change // what a crash may undo, nil when it undoes all or nothing
	logs     bool
	variant  Variant
	fenceTTL int64 // ms

	given map[uint64]int64 // owners that are given up, and until when (ms)
	prune int              // so many of them are looked through for those that are over
}

// newID returns an identity like those of Redis.
func newID(r *random) string { return fmt.Sprintf("%020x%020x", r.next(), r.next()) }

// at returns the present cell of a key. Redis ends a key in the millisecond after its time.
func (n *node) at(key uint16, ms int64) *cell {
	c := &n.cells[key]
	if c.owner != 0 && ms > c.lockUntil {
		c.owner = 0
	}
	if c.counter != 0 && ms > c.counterUntil {
		c.counter = 0
	}
	return c
}

// save logs a cell that is about to change.
func (n *node) save(key uint16, now int64) {
	if !n.logs {
		return
	}
	if len(n.log) == cap(n.log) && len(n.log) > 0 { // forget what is safe on disk
		kept := 0
		for kept < len(n.log) && n.log[kept].at < now-2*second {
			kept++
		}
		if kept > len(n.log)/2 {
			n.log = n.log[:copy(n.log, n.log[kept:])]
		}
	}
	n.log = append(n.log, change{at: now, key: key, cell: n.cells[key]})
}

// undo reverts what was written after a certain time.
func (n *node) undo(since int64) {
	for len(n.log) > 0 {
		last := &n.log[len(n.log)-1]
		if last.at < since {
			break
		}
		n.cells[last.key] = last.cell
		n.log = n.log[:len(n.log)-1]
	}
	n.log = n.log[:0]
}

// run executes a request and turns it into its reply.
func (n *node) run(m *message, now int64) {
	ms := n.wall(now) / 1000
	switch m.request {
	case acquire, retake:
		n.acquire(m, ms, now)
	case renew, extend:
		n.renew(m, ms, now)
	case release:
		n.release(m, ms, now)
	case abandon:
		n.abandon(m, ms, now)
	}
}

// acquire is ACQUIRE: all keys or none.
func (n *node) acquire(m *message, ms, now int64) {
	m.ok, m.holder = true, 0
	if ms < n.given[m.owner] && n.variant != UnmarkedRelease {
		m.ok = false
		return
	}
	for _, key := range m.key[:m.keys] {
		if c := n.at(key, ms); c.owner != 0 && c.owner != m.owner && m.ok {
			m.ok, m.holder, m.tokens[0] = false, c.owner, c.counter
		}
	}
	if !m.ok {
		n.release(m, ms, now)
		m.ok = false
		return
	}
	top := m.tokens[0]
	for i, key := range m.key[:m.keys] {
		c := n.at(key, ms)
		if c.owner != m.owner {
			n.save(key, now)
			if n.variant != RetakeLowers || m.request == acquire {
				c.counter = n.raise(c.counter, top, m.block)
			} else {
				c.counter = top
			}
			c.counterUntil = ms + n.fenceTTL
			c.owner, c.lockUntil = m.owner, ms+m.ttl
		}
		m.tokens[i] = c.counter
	}
}

// raise returns the counter after a grant.
func (n *node) raise(counter, top, block int64) int64 {
	switch n.variant {
	case IncrementOnly, SumOfGranted:
		return counter + block
	case ClientClockOnly:
		return top
	case OverlappingBlocks:
		return max(counter+1, top)
	default:
		return max(counter+block, top)
	}
}

// renew is RENEW: all keys or none.
func (n *node) renew(m *message, ms, now int64) {
	m.ok = true
	for i, key := range m.key[:m.keys] {
		c := n.at(key, ms)
		switch {
		case n.variant == BlindWriteBack:
		case c.owner != m.owner:
			m.ok = false
		case n.variant == OwnerOnlyWriteBack:
		case c.counter > m.tokens[i]:
			m.ok = false
		}
	}
	if !m.ok {
		return
	}
	for i, key := range m.key[:m.keys] {
		n.save(key, now)
		c := n.at(key, ms)
		c.counter, c.counterUntil = m.tokens[i], ms+n.fenceTTL
		if c.owner != 0 {
			c.lockUntil = ms + m.ttl
		}
	}
}

// release is RELEASE: every key that is still the owner's.
func (n *node) release(m *message, ms, now int64) {
	m.ok = true
	for i, key := range m.key[:m.keys] {
		c := n.at(key, ms)
		switch {
		case c.owner == m.owner:
			n.save(key, now)
			c.owner = 0
		case m.request == release && (c.owner != 0 || m.tokens[i] != 0 && c.counter > m.tokens[i]):
			m.ok = false
		}
	}
}

// lateness is how long a node refuses an acquire whose owner was abandoned (ms).
const lateness = 120_000

// abandon is ABANDON: it deletes the locks of an owner, or refuses the owner from now on if there are none.
func (n *node) abandon(m *message, ms, now int64) {
	m.ok = true
	seen := false
	for _, key := range m.key[:m.keys] {
		if c := n.at(key, ms); c.owner == m.owner {
			n.save(key, now)
			c.owner, seen = 0, true
		}
	}
	if seen {
		return
	}
	if n.given == nil {
		n.given = map[uint64]int64{}
	}
	n.given[m.owner] = ms + lateness
	if len(n.given) > n.prune {
		maps.DeleteFunc(n.given, func(_ uint64, until int64) bool { return until <= ms })
		n.prune = max(1<<10, 2*len(n.given))
	}
}

// start makes a new process serve the node.
func (n *node) start(r *random, now int64) {
	n.up, n.started, n.promoted = true, n.wall(now), -1
	n.runID, n.replID, n.replID2 = newID(r), newID(r), ""
	n.epoch++
}

// failOver replaces the node by a replica, a server that has been up for long.
func (n *node) failOver(r *random, now int64) {
	n.runID, n.replID, n.replID2 = newID(r), newID(r), n.replID
	n.started, n.promoted = n.wall(now)-100*second-r.below(1000*second), now
	n.epoch++
}

// facts returns what the node reports about itself.
func (n *node) facts(now, asked, backlogTTL int64, watched time.Duration) restartguard.Facts {
	wall := n.wall(now)
	f := restartguard.Facts{
		RunID: n.runID, Role: "master", ReplID: n.replID,
		Uptime:    time.Duration(wall/second-n.started/second) * time.Second,
		Clock:     moment(wall),
		Asked:     moment(asked),
		RoundTrip: 200 * time.Microsecond,
	}
	if n.mark == f.Identity() {
		f.Watched = watched
	}
	if n.promoted >= 0 && now < n.promoted+backlogTTL {
		f.ReplID2 = n.replID2
	}
	return f
}
