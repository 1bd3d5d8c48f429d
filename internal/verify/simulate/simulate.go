package simulate

import (
	"time"

	"github.com/railtoken/railtoken/internal/quorum"
	"github.com/railtoken/railtoken/internal/restartguard"
)

// Result counts what happened in a run.
type Result struct {
	Acquisitions int // attempts
	Committed    int // leases that got their tokens
	OneRound     int // of these, without another message after the first round
	ExtraRound   int // of these, with renewals
	Tokens       int // given to holders, including those of hand-offs
	Conflicts    int // attempts that others stood in the way of
	Unreachable  int // attempts that too few nodes answered
	Lost         int // leases that ended before their holder was done, or that were won too late
	Unfenced     int // leases that ended before anybody had asked for their token
	Extensions   int
	Retakes      int // requests to a node that has lost a lease's lock
	Retaken      int // of these, granted as far as the client knows
	Crashes      int // of nodes, failovers included
	Deaths       int // of clients
	TooLate      int // acquires that came after they had been taken back
	Refused      int // dials that the guard turned down
	Excused      int // leases for which the clocks broke their assumptions
	Excusable    int // overlaps of which a lease is excused
	Events       int
	Span         time.Duration // of virtual time

	Duplicates int
	OutOfOrder int
	Overlaps   int
	Orphans    int
	First      string // the first violation
}

// Violations returns how often a promise was broken.
func (r *Result) Violations() int { return r.Duplicates + r.OutOfOrder + r.Overlaps + r.Orphans }

// simulation is a run.
type simulation struct {
	Scenario
	random
	queue
	mailbox
	now       int64
	wanted    int
	result    Result
	nodes     []node
	clients   []client
	slots     []slot
	histories []history
	delays    *delays
	vet       Guard
	limits    restartguard.Limits
	others    []string
	owners    uint64
	numbers   uint32
	instant   uint64

	nodeJumped   int64 // when a node's wall clock was last set forward
	proposalSpan int64
	odds         struct{ lost, duplicated, lateDuplicate, suspended, stalled, rewound, long, full, partial, clockSet odds }
}

// Run simulates a scenario until the given number of acquisitions have begun, or, if stop is set, until a promise is
// broken.
func Run(sc Scenario, seed uint64, acquisitions int, stop bool) Result {
	s := newSimulation(sc, seed, acquisitions)
	for len(s.heap) > 0 {
		e := s.pop()
		s.now = e.at
		s.result.Events++
		s.handle(&e)
		if s.result.Acquisitions == s.wanted && s.idle() || stop && s.result.Violations() > 0 {
			break
		}
	}
	s.result.Span = time.Duration(s.now) * time.Microsecond
	return s.result
}

func newSimulation(sc Scenario, seed uint64, acquisitions int) *simulation {
	s := &simulation{
		Scenario: sc, random: random{state: seed}, wanted: acquisitions, vet: sc.Guard, nodeJumped: -1, now: second,
	}
	if s.vet == nil {
		s.vet = Production
	}
	s.limits = restartguard.Limits{MaxTTL: sc.MaxTTL, MaxSkew: sc.MaxTTL / 4}
	s.proposalSpan = micros(sc.ProposalSpan)
	if s.proposalSpan == 0 {
		s.proposalSpan = micros(sc.MaxTTL) / 2
	}
	s.odds.lost, s.odds.duplicated, s.odds.lateDuplicate = oddsOf(sc.Lost), oddsOf(sc.Duplicated), oddsOf(sc.LateDuplicate)
	s.odds.suspended, s.odds.stalled, s.odds.rewound = oddsOf(sc.Suspended), oddsOf(sc.Stalled), oddsOf(sc.Rewound)
	s.odds.clockSet = oddsOf(sc.ClockSet)
	s.odds.long, s.odds.full, s.odds.partial = oddsOf(sc.LongHolds), oddsOf(sc.FullLoss), oddsOf(sc.PartialLoss)
	s.delays = newDelays(&s.random, sc.Tail, micros(sc.Longest))
	s.histories = make([]history, sc.Keys)
	s.nodes = make([]node, sc.Nodes)
	for i := range s.nodes {
		n := &s.nodes[i]
		n.cells = make([]cell, sc.Keys)
		n.variant, n.fenceTTL = sc.Variant, sc.FenceTTL.Milliseconds()
		n.drift, n.phase, n.offset = sc.NodeDrift, s.below(2*turn), s.spread(micros(sc.NodeSkew))
		n.logs = sc.PartialLoss > 0 || sc.FailoverEvery > 0
		if n.logs {
			n.log = make([]change, 0, 1<<12)
		}
		n.start(&s.random, s.now)
		n.started -= 1000 * second
		n.mark = n.facts(s.now, s.now, 0, sc.MaxTTL).Identity()
		s.schedule(sc.NodeCrashEvery, event{kind: nodeCrashes, node: uint8(i)})
		s.schedule(sc.FailoverEvery, event{kind: nodeFailsOver, node: uint8(i)})
		s.schedule(sc.NodeJump, event{kind: nodeJumps, node: uint8(i)})
		s.schedule(sc.NodePartEvery, event{kind: nodeParts, node: uint8(i)})
	}
	s.clients = make([]client, sc.Clients)
	s.slots = make([]slot, sc.Clients*sc.Slots)
	for i := range s.clients {
		c := &s.clients[i]
		c.clock = new(quorum.Clock)
		c.drift, c.phase, c.offset = sc.ClientDrift, s.below(2*turn), s.spread(micros(sc.Skew))
		if i < 2 { // the extremes are always there
			c.offset = micros(sc.Skew) * int64(1-2*i)
		}
		s.schedule(sc.PauseEvery, event{kind: clientPauses, slot: int16(i)})
		s.schedule(sc.ClientCrashEvery, event{kind: clientCrashes, slot: int16(i)})
		s.schedule(sc.JumpEvery, event{kind: clientJumps, slot: int16(i)})
	}
	for i := range s.slots {
		s.slots[i].client = i / sc.Slots
		s.push(event{at: s.now + s.below(millisecond), kind: begin, slot: int16(i)})
	}
	return s
}

// spread returns a random number from -n to n.
func (s *simulation) spread(n int64) int64 {
	if n == 0 {
		return 0
	}
	return s.between(-n, n+1)
}

// schedule schedules the next event of a kind that occurs at random.
func (s *simulation) schedule(mean time.Duration, e event) {
	if mean == 0 {
		return
	}
	e.at = s.now + s.after(micros(mean))
	s.push(e)
}

// idle reports whether no client holds or wants a lock.
func (s *simulation) idle() bool {
	for i := range s.slots {
		if s.slots[i].phase != idle {
			return false
		}
	}
	return true
}

// handle processes an event. Events of a paused client wait until it runs again.
func (s *simulation) handle(e *event) {
	switch e.kind {
	case atNode:
		s.arrive(e)
	case clientPauses, clientCrashes, clientJumps, nodeCrashes, nodeStarts, nodeFailsOver, nodeJumps,
		nodeParts, nodeReturns, nodeLeaps:
		s.upset(e)
	default:
		slot := e.slot
		if e.kind == atClient {
			slot = s.all[e.ref].slot
		}
		if until := s.clients[s.slots[slot].client].paused; s.now < until {
			e.at = until
			s.push(*e)
			return
		}
		s.run(e)
	}
}

// arrive executes a request on its node and sends the reply. It does nothing if the connection has broken.
func (s *simulation) arrive(e *event) {
	m := &s.all[e.ref]
	n := &s.nodes[e.node]
	if !n.up || n.epoch != m.epoch {
		s.drop(e.ref)
		return
	}
	s.instant++
	late := (m.request == acquire || m.request == retake) && n.wall(s.now)/1000 < n.given[m.owner]
	n.run(m, s.now)
	if late {
		s.result.TooLate++
		if m.ok {
			s.violation(&s.result.Orphans, "key %d: node %d granted an acquire that had been taken back", m.key[0], e.node)
		}
	}
	m.instant = s.instant
	if s.chance(s.odds.lost) {
		s.drop(e.ref)
		return
	}
	s.push(event{at: s.now + s.delays.draw(&s.random), kind: atClient, ref: e.ref})
}

// run processes an event of a client.
func (s *simulation) run(e *event) {
	switch e.kind {
	case atClient:
		s.reply(e.ref)
		return
	case lateRelease:
		m := s.all[e.ref]
		s.drop(e.ref)
		if m.process == s.clients[s.slots[e.slot].client].process {
			s.takeBack(&m, abandon)
		}
		return
	}
	sl := &s.slots[e.slot]
	if e.ref != sl.attempt {
		return
	}
	switch e.kind {
	case begin:
		if sl.phase == idle || sl.phase == releasing {
			s.begin(e.slot)
		}
	case send:
		s.sendAcquire(e.slot)
	case acquireOver:
		s.over(e.slot)
	case renewOver:
		if sl.phase == holding {
			s.renewOver(e.slot, e.arg)
		}
	case extendOver:
		s.extendOver(e.slot, e.arg)
	case tick:
		if sl.phase == holding {
			s.tick(e.slot)
		}
	case handOff:
		if sl.phase == holding {
			s.handOff(e.slot)
		}
	case reclaim:
		if sl.phase == holding {
			s.reclaim(e.slot)
		}
	}
}

// upset disturbs a machine.
func (s *simulation) upset(e *event) {
	c, n := &s.clients[0], &s.nodes[e.node]
	if e.kind <= clientJumps {
		c = &s.clients[e.slot]
	}
	switch e.kind {
	case clientPauses:
		if s.now >= c.paused {
			// Most pauses are short, some last as long as a lease or longer.
			c.paused = s.now + s.below(1+s.below(micros(s.LongestStop)))
			if s.chance(s.odds.suspended) {
				c.suspend(s.now, c.paused)
				if s.chance(s.odds.rewound) {
					c.offset = max(c.offset-(c.paused-s.now), -micros(s.Skew))
				}
			}
		}
		s.schedule(s.PauseEvery, *e)
	case clientCrashes:
		s.result.Deaths++
		s.die(int(e.slot))
		s.schedule(s.ClientCrashEvery, *e)
	case clientJumps:
		c.offset = s.spread(micros(s.Skew))
		s.schedule(s.JumpEvery, *e)
	case nodeCrashes:
		if n.up {
			s.result.Crashes++
			s.crash(n)
			s.push(event{at: s.now + millisecond + s.below(300*millisecond), kind: nodeStarts, node: e.node})
		}
		s.schedule(s.NodeCrashEvery, *e)
	case nodeStarts:
		n.start(&s.random, s.now)
		if s.chance(s.odds.clockSet) {
			n.started -= s.below(100 * second)
		}
	case nodeFailsOver:
		if n.up {
			s.result.Crashes++
			n.undo(s.now - s.below(200*millisecond))
			n.failOver(&s.random, s.now)
		}
		s.schedule(s.FailoverEvery, *e)
	case nodeParts:
		if n.up {
			n.up = false
			n.epoch++
			s.push(event{at: s.now + s.below(micros(s.NodeParted)), kind: nodeReturns, node: e.node})
		}
		s.schedule(s.NodePartEvery, *e)
	case nodeReturns:
		n.up = true
		other := (int(e.node) + 1 + int(s.below(int64(len(s.nodes)-1)))) % len(s.nodes)
		s.push(event{at: s.now + s.below(micros(s.TopTTL)), kind: nodeLeaps, node: uint8(other)})
	case nodeLeaps:
		s.leap(n)
	case nodeJumps:
		s.jump(n)
		s.schedule(s.NodeJump, *e)
	}
}

// crash ends a node's process and what it has not saved.
func (s *simulation) crash(n *node) {
	n.up = false
	n.epoch++ // nothing that was sent before comes
	clear(n.given)
	switch r := odds(s.next() >> 32); {
	case r < s.odds.full:
		clear(n.cells)
		n.log = n.log[:0]
	case r-s.odds.full < s.odds.partial:
		n.undo(s.now - s.below(second))
	default:
		n.log = n.log[:0]
	}
}

// jump sets a node's wall clock.
func (s *simulation) jump(n *node) {
	offset := s.spread(micros(s.NodeSkew))
	if offset > n.offset {
		s.nodeJumped = s.now
	}
	n.offset = offset
}

// leap sets a node's clock beyond the end of every lock, and back.
func (s *simulation) leap(n *node) {
	for key := range n.cells {
		n.at(uint16(key), (n.wall(s.now)+micros(s.TopTTL)+second)/1000)
	}
	s.nodeJumped = s.now
}

// die ends a client's process. Another one starts soon and knows nothing.
func (s *simulation) die(which int) {
	c := &s.clients[which]
	c.process++
	c.clock = new(quorum.Clock)
	for i := range s.nodes {
		c.conn[i], c.known[i], c.refused[i] = 0, restartguard.Known{}, 0
	}
	restart := max(c.paused, s.now) + s.below(20*millisecond)
	for i := range s.slots {
		sl := &s.slots[i]
		if sl.client != which {
			continue
		}
		if sl.phase == holding {
			s.leave(int16(i))
		}
		sl.attempt++
		sl.phase = idle
		s.push(event{at: restart, kind: begin, slot: int16(i), ref: sl.attempt})
	}
}
