package simulate

import (
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/quorum"
	"github.com/railtoken/railtoken/internal/restartguard"
)

// client is a process on a machine of its own.
type client struct {
	machine
	clock   *quorum.Clock
	process uint32 // a crash ends it, and what was sent to it
	paused  int64  // nothing runs before this time
	conn    [maxNodes]uint32
	known   [maxNodes]restartguard.Known
	refused [maxNodes]int64 // not dialled before this time
}

// phase is what a slot does.
type phase uint8

const (
	idle phase = iota
	acquiring
	holding
	releasing
)

// slot makes one acquisition after another.
type slot struct {
	client  int
	attempt uint32
	phase   phase
	keys    int
	key     [maxKeys]uint16
	owner   uint64
	ttl     int64
	block   int64
	top     int64

	began    int64 // true time
	deadline int64 // true time by which the answers to the acquire are awaited
	watch    stopwatch
	honest   stopwatch // measures right in every variant
	looked   int64     // true time of its last look
	missed   bool      // from one look to the next it has measured less than has passed
	until    int64     // elapsed time up to which the lease is trusted
	excused  bool

	acq         *quorum.Acquisition
	index       [maxNodes]int8 // positions of the nodes in acq, only for AnsweringQuorum
	acquired    uint16         // nodes that have answered the acquire
	raw         [maxNodes]message
	instants    [maxNodes]uint64
	first       [maxKeys]int64
	floor       [maxKeys]int64
	tokens      []int64
	used        int64 // tokens of the block that were given to holders
	handOffs    int64
	unreachable bool
	extra       bool // the commit took an extra round
	long        bool

	sent         [maxNodes][maxKeys]int64 // the largest tokens of renewals to a node
	renewals     [maxNodes]uint32         // numbers of those of the commit that are under way
	poll         quorum.Poll              // of the extension or the release
	polled       uint16
	extension    uint32 // number of the one under way
	extendedFrom int64  // elapsed time at which it was sent
	lost         uint16 // nodes that have said no to it
	missing      uint16 // nodes that have failed, so that the lock may be missing there
	pause        int64  // before they are asked for it
	nextTick     int64
}

// position returns where a node is in the acquisition.
func (sl *slot) position(node int) int { return int(sl.index[node]) }

// begin starts the next attempt of a slot: it makes the proposal, and sends the requests at once or after a stall.
func (s *simulation) begin(i int16) {
	if s.result.Acquisitions == s.wanted {
		s.slots[i].phase = idle
		return
	}
	s.result.Acquisitions++
	sl := &s.slots[i]
	c := &s.clients[sl.client]
	sl.attempt++
	sl.phase = acquiring
	s.owners++
	sl.owner = s.owners
	sl.keys = 1
	if s.KeysPerLock > 1 {
		sl.keys += int(s.below(int64(s.KeysPerLock)))
	}
	for k := 0; k < sl.keys; {
		key := uint16(s.below(int64(s.Keys)))
		if s.Hot > 0 && s.next()&1 == 0 {
			key = uint16(s.below(int64(s.Hot)))
		}
		if k > 0 && slices.Contains(sl.key[:k], key) {
			if s.Keys <= s.KeysPerLock {
				sl.keys = k
			}
			continue
		}
		sl.key[k] = key
		k++
	}
	sl.ttl = s.between(micros(s.MinTTL), micros(s.TopTTL)+1) / millisecond * millisecond
	sl.block = 1
	if s.Block > 1 {
		sl.block += s.below(s.Block)
	}
	sl.began = s.now
	sl.watch.start(&c.machine, s.now)
	sl.honest = sl.watch
	sl.looked, sl.missed, sl.excused, sl.extra, sl.unreachable = s.now, false, false, false, false
	sl.top = c.clock.Propose(c.wall(s.now), sl.block)
	if s.chance(s.odds.stalled) {
		s.push(event{at: s.now + s.between(millisecond, micros(s.LongestStop)), kind: send, slot: i, ref: sl.attempt})
		return
	}
	s.sendAcquire(i)
}

// sendAcquire sends ACQUIRE to all nodes.
func (s *simulation) sendAcquire(i int16) {
	sl := &s.slots[i]
	sl.acq = quorum.New(len(s.nodes))
	sl.acquired, sl.extension, sl.used, sl.tokens = 0, 0, 0, nil
	for k, key := range sl.key[:sl.keys] {
		sl.floor[k] = s.histories[key].floor
	}
	sl.sent, sl.renewals = [maxNodes][maxKeys]int64{}, [maxNodes]uint32{}
	sl.first[0] = 0
	sl.missing, sl.pause = 0, 0
	sl.deadline = s.now + micros(s.Timeout)
	var down uint16
	for n := range s.nodes {
		sl.index[n] = int8(n)
		if !s.transmit(i, n, acquire, 0) {
			down |= 1 << n
		}
	}
	for n := range s.nodes {
		if down&(1<<n) != 0 {
			sl.acquired |= 1 << n
			sl.raw[n] = message{}
			s.answered(sl, n)
		}
	}
	s.push(event{at: sl.deadline, kind: acquireOver, slot: i, ref: sl.attempt})
	s.decide(i)
}

// transmit sends a request for a slot's lease. It returns false if there is no connection.
func (s *simulation) transmit(i int16, to int, r request, number uint32) bool {
	sl := &s.slots[i]
	c := &s.clients[sl.client]
	if !s.dial(c, to) {
		return false
	}
	at := s.take()
	m := &s.all[at]
	*m = message{
		request: r, keys: uint8(sl.keys), node: uint8(to), slot: i, attempt: sl.attempt,
		process: c.process, epoch: s.nodes[to].epoch,
		number: number, key: sl.key, owner: sl.owner, ttl: sl.ttl / millisecond, block: sl.block,
	}
	switch r {
	case acquire:
		m.tokens[0] = sl.top
	case renew, extend:
		m.tokens = sl.sent[to]
	case retake:
		m.tokens[0] = slices.Max(sl.tokens)
	case release:
		copy(m.tokens[:], sl.tokens)
	}
	s.deliver(at)
	return true
}

// deliver sends a request over the network.
func (s *simulation) deliver(at uint32) {
	to := s.all[at].node
	if s.chance(s.odds.duplicated) {
		copied := s.take()
		s.all[copied] = s.all[at]
		delay := s.delays.draw(&s.random)
		if s.chance(s.odds.lateDuplicate) {
			delay += s.below(micros(s.LateBy))
		}
		s.push(event{at: s.now + delay, kind: atNode, node: to, ref: copied})
	}
	if s.chance(s.odds.lost) {
		s.drop(at)
		return
	}
	s.push(event{at: s.now + s.delays.draw(&s.random), kind: atNode, node: to, ref: at})
}

// dial connects to a server if it may vote.
func (s *simulation) dial(c *client, to int) bool {
	n := &s.nodes[to]
	if c.conn[to] == n.epoch+1 {
		return true
	}
	if !n.up || s.now < c.refused[to] {
		return false
	}
	others := s.others[:0]
	for o := range s.nodes {
		if o != to && c.conn[o] != 0 {
			others = append(others, c.known[o].RunID)
		}
	}
	now := moment(c.mono(s.now))
	var until time.Time
	if s.Variant != NoGuard {
		f := n.facts(s.now, c.wall(s.now), 2*micros(s.MaxTTL), s.MaxTTL)
		c.known[to], until = s.vet(f, s.limits, c.known[to], others, now)
		if until.IsZero() {
			n.mark = f.Identity()
		}
	}
	if !until.IsZero() {
		s.result.Refused++
		c.refused[to] = s.now + max(min(micros(until.Sub(now)), second), millisecond)
		return false
	}
	c.conn[to] = n.epoch + 1
	return true
}

// answered feeds the answer to an acquire to the decision: that in raw, or a failure when it is empty.
func (s *simulation) answered(sl *slot, n int) {
	if s.Variant == AnsweringQuorum {
		return
	}
	m := &sl.raw[n]
	switch {
	case m.attempt == 0:
		sl.acq.Failed(n)
		sl.missing |= 1 << n
	case m.ok:
		s.granted(sl, n, n)
	default:
		sl.acq.Held(n, owners[m.holder%uint64(len(owners))])
	}
}

// granted passes a grant to the decision.
func (s *simulation) granted(sl *slot, n, position int) {
	m := &sl.raw[n]
	if sl.acq.Counters(position) == nil {
		tops := m.tokens[:sl.keys:sl.keys]
		sl.acq.Granted(position, slices.Clone(tops))
		if sl.acq.Counters(position) != nil {
			sl.instants[n] = m.instant
		}
	}
	if sl.first[0] == 0 {
		sl.first = m.tokens
	}
}

// owners holds names for holders, because the decision compares strings.
var owners = func() (names [64]string) {
	for i := range names {
		names[i] = string(rune('0' + i))
	}
	return names
}()

// reply handles a reply that has reached its client.
func (s *simulation) reply(at uint32) {
	m := s.all[at]
	s.drop(at)
	sl := &s.slots[m.slot]
	c := &s.clients[sl.client]
	if m.process != c.process {
		return
	}
	if m.request != release {
		for _, counter := range m.tokens[:m.keys] {
			c.clock.See(counter, c.wall(s.now)+micros(s.FenceTTL))
		}
	}
	if m.attempt != sl.attempt || sl.phase == idle || (sl.phase == releasing && m.request != release) {
		if (m.request == acquire || m.request == retake) && m.ok { // granted after all was over
			s.chain(&m)
		}
		return
	}
	switch m.request {
	case acquire:
		if sl.acquired&(1<<m.node) != 0 && sl.raw[m.node].attempt != 0 {
			return // the answer to the same request, once more
		}
		sl.acquired |= 1 << m.node
		sl.raw[m.node] = m
		late := s.Variant == AnsweringQuorum && sl.phase == holding
		if !late {
			s.answered(sl, int(m.node))
		}
		if sl.phase == acquiring {
			s.decide(m.slot)
		} else {
			s.commit(m.slot)
		}
	case renew:
		if sl.renewals[m.node] != m.number {
			return
		}
		sl.renewals[m.node] = 0
		s.renewed(sl, &m)
		s.commit(m.slot)
	case extend:
		if m.number == 0 { // of reclaim
			s.renewed(sl, &m)
			if m.ok {
				sl.missing &^= 1 << m.node
			}
			return
		}
		if sl.extension != m.number || sl.polled&(1<<m.node) != 0 {
			return
		}
		s.renewed(sl, &m)
		if !m.ok && sl.tokens != nil && s.Variant == RetakeExpired {
			s.transmit(m.slot, int(m.node), retake, m.number)
			return
		}
		sl.polled |= 1 << m.node
		if m.ok {
			sl.poll.Yes()
		} else {
			sl.lost |= 1 << m.node
			sl.poll.No()
		}
		s.extended(m.slot)
		if sl.phase == holding && sl.attempt == m.attempt {
			s.commit(m.slot)
		}
	case retake:
		s.retaken(sl, &m)
	case release:
		if sl.polled&(1<<m.node) != 0 {
			return
		}
		sl.polled |= 1 << m.node
		if m.ok {
			sl.poll.Yes()
		} else {
			sl.poll.No()
		}
		if sl.poll.Outcome() != quorum.Open {
			s.again(m.slot)
		}
	}
}

// renewed passes the answer to a renewal of any kind to the decision.
func (s *simulation) renewed(sl *slot, m *message) {
	position := sl.position(int(m.node))
	if position < 0 {
		return
	}
	sl.acq.Renewed(position, slices.Clone(m.tokens[:sl.keys]), m.ok)
	if m.ok && sl.acq.Counters(position) != nil {
		sl.instants[m.node] = m.instant
	}
}

// chain sends the release that follows a late grant.
func (s *simulation) chain(m *message) { s.takeBack(m, release) }

// takeBack sends a release of some kind for the acquire of a message.
func (s *simulation) takeBack(m *message, kind request) {
	sl := &s.slots[m.slot]
	if !s.dial(&s.clients[sl.client], int(m.node)) {
		return
	}
	at := s.take()
	r := &s.all[at]
	*r = *m
	r.request, r.tokens, r.epoch = kind, [maxKeys]int64{}, s.nodes[m.node].epoch
	s.deliver(at)
}

// over handles the timeout of an acquire.
func (s *simulation) over(i int16) {
	sl := &s.slots[i]
	if sl.phase != acquiring && sl.phase != holding {
		return
	}
	for n := range s.nodes {
		if sl.acquired&(1<<n) == 0 {
			sl.acquired |= 1 << n
			sl.raw[n] = message{}
			s.answered(sl, n)
		}
	}
	if sl.phase == acquiring {
		s.decide(i)
	} else {
		s.reclaimLater(i)
		s.commit(i)
	}
}
