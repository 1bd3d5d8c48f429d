package simulate

import (
	"slices"
	"time"

	"github.com/railtoken/railtoken/locking/internal/guard"
	"github.com/railtoken/railtoken/locking/internal/quorum"
)

// client is a process with its machine.
type client struct {
	machine
	clock   *quorum.Clock
	process uint32 // a crash ends it, and what was sent to it
	paused  int64  // nothing runs before this time
	conn    [maxNodes]uint32
	known   [maxNodes]guard.Known
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

// slot makes one acquisition after the other.
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
	handOns     int64
	unreachable bool
	extra       bool // the commit took an extra round
	long        bool

	sent         [maxNodes][maxKeys]int64 // the largest tokens of renewals to a node
	renewals     [maxNodes]uint32         // numbers of those of the commit that are under way
	poll         quorum.Poll              // of the extension or the release
	polled       uint16
	extension    uint32 // number of the one under way
	extendedFrom int64  // elapsed time at which it was sent
	nextTick     int64
}

// position returns where a node is in the acquisition.
func (sl *slot) position(node int) int { return int(sl.index[node]) }

// begin makes the next attempt of a slot: the proposal, and the requests at once or after a stall.
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

// transmit sends a request for a slot's lease. It reports false when there is no connection.
func (s *simulation) transmit(i int16, to int, r request, number uint32) bool {
	sl := &s.slots[i]
	c := &s.clients[sl.client]
	if !s.dial(c, to) {
		return false
	}
	at := s.take()
	m := &s.all[at]
	*m = message{
		request: r, keys: uint8(sl.keys), node: uint8(to), slot: i, attempt: sl.attempt, process: c.process, epoch: s.nodes[to].epoch,
		number: number, key: sl.key, owner: sl.owner, ttl: sl.ttl / millisecond, block: sl.block,
	}
	switch r {
	case acquire:
		m.tokens[0] = sl.top
	case renew, extend:
		m.tokens = sl.sent[to]
	case release:
		copy(m.tokens[:], sl.tokens)
	}
	s.deliver(at)
	return true
}

// deliver puts a request on the network.
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

// dial makes sure that there is a connection to a server that may vote.
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
		c.known[to], until = s.vet(n.facts(s.now, c.wall(s.now), 2*micros(s.MaxTTL)), s.limits, c.known[to], others, now)
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
	case m.ok:
		s.granted(sl, n, n)
	default:
		sl.acq.Held(n, owners[m.holder%uint64(len(owners))])
	}
}

// granted feeds a grant to the decision.
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

// owners are names for holders: the decision compares them as strings.
var owners = func() (names [64]string) {
	for i := range names {
		names[i] = string(rune('0' + i))
	}
	return names
}()

// reply handles a message that has reached its client.
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
			c.clock.See(counter)
		}
	}
	if m.attempt != sl.attempt || sl.phase == idle || (sl.phase == releasing && m.request != release) {
		if m.request == acquire && m.ok { // granted after all was over
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
		if sl.extension != m.number || sl.polled&(1<<m.node) != 0 {
			return
		}
		sl.polled |= 1 << m.node
		if m.ok {
			sl.poll.Yes()
		} else {
			sl.poll.No()
		}
		s.renewed(sl, &m)
		s.extended(m.slot)
		if sl.phase == holding && sl.attempt == m.attempt {
			s.commit(m.slot)
		}
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

// renewed feeds the answer to a renewal of any kind to the decision.
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
func (s *simulation) chain(m *message) {
	sl := &s.slots[m.slot]
	if !s.dial(&s.clients[sl.client], int(m.node)) {
		return
	}
	at := s.take()
	r := &s.all[at]
	*r = *m
	r.request, r.tokens, r.epoch = release, [maxKeys]int64{}, s.nodes[m.node].epoch
	s.deliver(at)
}

// over handles the end of the time for the answers to an acquire.
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
		s.commit(i)
	}
}

// answering makes up the acquisition of a client that counts the answers only.
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

// decide looks whether an acquisition has come to an end.
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

// won begins a lease.
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
	sl.handOns = 0
	if sl.block > 1 && s.next()&3 == 0 {
		sl.handOns = s.below(sl.block)
	}
	s.push(event{at: s.now + hold, kind: handOn, slot: i, ref: sl.attempt})
	sl.nextTick = sl.ttl / 3
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
	s.result.Lost++
	s.end(i)
	return false
}

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

// raise notes the tokens that a renewal takes to a node. They never go back, so that the last one to arrive is no loss.
func (sl *slot) raise(n int, tokens []int64) {
	for k, t := range tokens {
		sl.sent[n][k] = max(sl.sent[n][k], t)
	}
}

// renewOver gives up waiting for the answers to a commit's renewals.
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

// tick looks at a lease's clocks, and extends it when it is time.
func (s *simulation) tick(i int16) {
	if !s.alive(i) {
		return
	}
	sl := &s.slots[i]
	elapsed := sl.watch.total
	if elapsed >= sl.nextTick && sl.extension == 0 {
		s.extend(i, elapsed)
		if sl.phase != holding {
			return
		}
	}
	s.push(event{at: s.now + s.toTick(sl, elapsed), kind: tick, slot: i, ref: sl.attempt})
}

// extend sends a renewal to all nodes. It commits as well: it takes the tokens of the commit along, or what the node has if that is
// more.
func (s *simulation) extend(i int16, elapsed int64) {
	sl := &s.slots[i]
	tokens := sl.tokens
	if tokens == nil || s.Variant.immediate() {
		tokens = sl.acq.Commit().Tokens
	}
	s.result.Extensions++
	s.numbers++
	sl.extension, sl.extendedFrom = s.numbers, elapsed
	sl.poll, sl.polled = quorum.NewPoll(len(s.nodes)), 0
	for n := range s.nodes {
		sl.raise(n, tokens)
		if position := sl.position(n); position >= 0 {
			sl.raise(n, sl.acq.Counters(position))
		}
		if !s.transmit(i, n, extend, sl.extension) {
			sl.polled |= 1 << n
			sl.poll.Failed()
		}
	}
	sl.nextTick = elapsed + sl.ttl/3
	s.push(event{at: s.now + micros(s.Timeout), kind: extendOver, slot: i, ref: sl.attempt, arg: sl.extension})
	s.extended(i)
}

// extendOver gives up waiting for the answers to an extension.
func (s *simulation) extendOver(i int16, number uint32) {
	sl := &s.slots[i]
	if sl.phase != holding || sl.extension != number {
		return
	}
	for n := range s.nodes {
		if sl.polled&(1<<n) == 0 {
			sl.polled |= 1 << n
			sl.poll.Failed()
		}
	}
	s.extended(i)
}

// extended looks what an extension has come to.
func (s *simulation) extended(i int16) {
	sl := &s.slots[i]
	if sl.phase != holding || sl.extension == 0 {
		return
	}
	switch sl.poll.Outcome() {
	case quorum.Done:
		if !s.alive(i) {
			return
		}
		sl.until = max(sl.until, sl.extendedFrom+micros(quorum.Validity(time.Duration(sl.ttl)*time.Microsecond)))
		sl.extension = 0
		s.enter(i)
	case quorum.Lost:
		s.result.Lost++
		s.end(i)
	case quorum.Unknown:
		sl.nextTick = s.look(sl) + sl.ttl/20
		sl.extension = 0
	case quorum.Open:
	}
}

// handOn ends the turn of one holder of a lease: the next one of its process gets it, or it is released.
func (s *simulation) handOn(i int16) {
	if !s.alive(i) {
		return
	}
	sl := &s.slots[i]
	if sl.tokens == nil && s.next()&3 != 0 { // wait for the token, unless nobody asks for it
		s.push(event{at: s.now + millisecond + s.after(micros(s.Hold)), kind: handOn, slot: i, ref: sl.attempt})
		return
	}
	if sl.tokens != nil && sl.handOns > 0 && sl.used < sl.block && sl.watch.total < sl.until*2/3 {
		sl.handOns--
		s.give(sl)
		s.push(event{at: s.now + s.after(micros(s.Hold)), kind: handOn, slot: i, ref: sl.attempt})
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

// again lets a slot make its next attempt after a while.
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
