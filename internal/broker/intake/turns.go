package intake

import (
	"math/bits"
	"time"
)

// queueSet is a set of queues by their positions in the order of priorities. Those from the last bit on share it.
type queueSet uint64

// setOf returns the set of the queue at a position.
func setOf(position int) queueSet { return 1 << min(position, 63) }

// allOf returns the set of the first n queues.
func allOf(n int) queueSet {
	if n > 63 {
		return ^queueSet(0)
	}
	return 1<<n - 1
}

// has reports whether a queue is in the set.
func (q queueSet) has(position int) bool { return q&setOf(position) != 0 }

// highest returns the queues of the set with the highest priority.
func (q queueSet) highest() queueSet { return q & -q }

// turnLength is how long a server takes tasks from a place while others wait for their turn, and restMost how long a place
// rests at most after a call that failed. reachMost is how many places a Fetch asks: each call needs a connection.
const (
	turnLength = 50 * time.Millisecond
	restFirst  = 25 * time.Millisecond
	restMost   = time.Second
	reachMost  = 32
)

// turns decides which of many places a server takes tasks from. It takes from a few of them at a time, so that each call has
// many tasks, and gives a place up for the next one when its turn is over or it has no more tasks. A Fetch asks as many places
// at the same time, and twice as many as the last one if each of those had too few tasks. It does no I/O; the caller holds a mutex.
type turns struct {
	strict bool
	slots  int
	width  int  // how many places are open at a time
	reach  int  // how many places a Fetch asks
	full   bool // a place that the last Fetch has asked had as many tasks as it was asked for
	all    []turn
	next   int // where the search for the next place begins
}

// turn is what is known of one place.
type turn struct {
	has    queueSet // its queues
	may    queueSet // those that may have tasks
	heard  int      // counts what was heard of them
	open   bool     // the server takes tasks from it
	since  time.Time
	served time.Time // when it was last asked for tasks
	busy   bool      // a Fetch is under way, or is to be recalled
	rests  time.Time // no Fetch before, because the last one has failed
	rest   time.Duration
	outage *outage // of its master; nil while that answers
}

// outage is that of a master. One call at a time, for one task, finds out whether it is over: that to the place prober, nobody's if it is
// negative.
type outage struct{ prober int }

func newTurns(places, slots int, strict bool) *turns {
	t := &turns{strict: strict, slots: max(slots, 1), width: max(2, slots/16), full: true, all: make([]turn, places)}
	for i := range t.all {
		t.all[i].has = ^queueSet(0)
	}
	return t
}

// hear notes that queues of a place may have tasks. It reports whether that is new.
func (t *turns) hear(i int, queues queueSet) bool {
	p := &t.all[i]
	queues &= p.has
	fresh := queues&^p.may != 0
	p.may |= queues
	p.heard++
	return fresh
}

// free reports whether a Fetch may ask a place that may have tasks.
func (p *turn) free(now time.Time) bool { return p.may != 0 && p.answers(now) }

// answers reports whether a Fetch may ask a place.
func (p *turn) answers(now time.Time) bool {
	return !p.busy && !now.Before(p.rests) && (p.outage == nil || p.outage.prober < 0)
}

// any reports whether a Fetch may ask any place.
func (t *turns) any(now time.Time) bool {
	for i := range t.all {
		if t.all[i].free(now) {
			return true
		}
	}
	return false
}

// top returns the highest queues that may have tasks in places that a Fetch may ask, or in place i.
func (t *turns) top(now time.Time, i int) queueSet {
	var may queueSet
	for j := range t.all {
		if p := &t.all[j]; p.free(now) || j == i {
			may |= p.may
		}
	}
	return may.highest()
}

// waits reports whether a place waits for its turn, or to be asked in it.
func (p *turn) waits(now time.Time) bool {
	return p.free(now) && (!p.open || now.Sub(p.served) >= turnLength)
}

// waiting returns how many places wait for their turns, and how many may have tasks at all.
func (t *turns) waiting(now time.Time) (waiting, free int) {
	for i := range t.all {
		if t.all[i].free(now) {
			free++
		}
		if t.all[i].waits(now) {
			waiting++
		}
	}
	return waiting, free
}

// apartFrom returns how many of n places are others than one, which is counted among them or not.
func apartFrom(n int, counted bool) int {
	if counted {
		n--
	}
	return n
}

// asked is what a place is to be asked for.
type asked struct {
	fetch  bool // by a Fetch, not with acknowledgements
	queues queueSet
	share  bool // only a share of the slots: others may have tasks, too
	probe  bool // only one: the place may not answer
	woken  bool // only those that the acknowledgements wake
	heard  int
}

// pick is a place that a Fetch asks, what for, and for how many tasks at most; negative for as many as there are slots.
type pick struct {
	place int
	asked
	most int
}

// picks returns the places that the next Fetch asks at the same time for tasks for some free slots, and opens them; none if none may
// have tasks. For each, the caller calls answered or failed, and leave in the end.
func (t *turns) picks(now time.Time, free int) (all []pick) {
	want := ^queueSet(0)
	if t.strict {
		want = t.top(now, -1)
	}
	reach := t.width
	if !t.full {
		reach = min(2*t.reach, len(t.all), max(reachMost, t.width))
	}
	share := (t.slots + reach - 1) / reach
	waiting, _ := t.waiting(now)
	for len(all) < max((free+share-1)/share, 1) {
		i, ok := t.pick(now, want, &waiting)
		if !ok {
			break
		}
		all = append(all, pick{place: i})
	}
	if len(all) == 0 {
		return nil
	}
	t.reach, t.full = reach, false
	_, others := t.waiting(now)
	for n := range all {
		p := &all[n]
		p.asked = t.of(&t.all[p.place], want, others > 0 || len(all) > 1)
		p.fetch, p.most = true, -1
		switch {
		case p.probe:
			p.most = 1
		case p.share:
			p.most = share
		}
	}
	return all
}

// pick returns a place that may have tasks in some queues, and opens it. waiting places wait, and are counted on.
func (t *turns) pick(now time.Time, want queueSet, waiting *int) (i int, ok bool) {
	open, oldest, next := 0, -1, -1
	for n := range t.all {
		j := (t.next + n) % len(t.all)
		p := &t.all[j]
		if !p.free(now) || p.may&want == 0 {
			continue
		}
		switch {
		case p.open && !p.over(now, waiting):
			open++
			if oldest < 0 || p.served.Before(t.all[oldest].served) {
				oldest = j
			}
		case next < 0:
			next = j
		}
	}
	switch {
	case next >= 0 && (open < t.width || oldest < 0):
		i = next
		t.next = (i + 1) % len(t.all)
	case oldest >= 0:
		i = oldest
	default:
		return 0, false
	}
	*waiting = apartFrom(*waiting, t.all[i].waits(now))
	if !t.all[i].open {
		t.begin(i, now)
	}
	t.ask(i)
	t.all[i].served = now
	return i, true
}

// ask notes that a Fetch of a place is under way.
func (t *turns) ask(i int) {
	p := &t.all[i]
	if p.busy = true; p.outage != nil {
		p.outage.prober = i
	}
}

// of returns what a place is asked for: with strict priorities the highest queues alone, if others may have tasks in them.
func (t *turns) of(p *turn, want queueSet, others bool) asked {
	a := asked{queues: ^queueSet(0), share: others, probe: p.outage != nil, heard: p.heard}
	if t.strict && others {
		a.queues = p.may & want
	}
	return a
}

// begin begins the turn of a place.
func (t *turns) begin(i int, now time.Time) {
	t.all[i].open, t.all[i].since = true, now
}

// over ends the turn of an open place, if it is over and other places wait. Then it waits itself.
func (p *turn) over(now time.Time, waiting *int) bool {
	waits := p.waits(now)
	if now.Sub(p.since) < turnLength || apartFrom(*waiting, waits) == 0 {
		return false
	}
	p.open = false
	*waiting = apartFrom(*waiting, waits)
	if p.waits(now) {
		*waiting++
	}
	return true
}

// join returns what the acknowledgements of a place ask for in the same call, and how many tasks at most; negative for as many
// as there are slots. ownSlots are those that they free. While others have their turn, they take the tasks that they wake.
func (t *turns) join(i int, now time.Time, ownSlots int) (a asked, most int) {
	p := &t.all[i]
	waiting, free := t.waiting(now)
	others := apartFrom(free, p.free(now)) > 0
	want := ^queueSet(0)
	if t.strict {
		want = t.top(now, i)
	}
	switch {
	case t.strict && others && p.may&want == 0, p.outage != nil:
		return asked{}, 0
	case p.may == 0: // only a task that they wake may be there
		return asked{queues: ^queueSet(0), share: true, heard: p.heard}, ownSlots
	case p.open && p.over(now, &waiting), !p.open && apartFrom(waiting, p.waits(now)) > 0: // who waits for a key that is released now waits for no turn
		a = t.of(p, want, others)
		a.woken = true
		return a, ownSlots
	case !p.open:
		t.begin(i, now)
	}
	p.served = now
	most = -1
	if others {
		most = ownSlots
	}
	return t.of(p, want, others), most
}

// answered notes the answer of a place. full says that as many tasks came as were asked for, more that it may have more. A place that
// had too few, because the others wait for keys, gives up its turn.
func (t *turns) answered(i int, a asked, full, more bool) {
	p := &t.all[i]
	p.rest = 0
	p.open = p.open && full
	t.full = t.full || full && a.fetch
	if p.outage != nil {
		t.back(p.outage)
	}
	switch {
	case more && p.may == 0:
		p.may = a.queues & p.has
	case !more && p.heard == a.heard:
		p.may &^= a.queues
	}
}

// failed notes that a place could not be asked: it rests, longer after each failure in a row.
func (t *turns) failed(i int, now time.Time) {
	p := &t.all[i]
	p.rest = min(max(2*p.rest, restFirst), restMost)
	p.rests, p.open = now.Add(p.rest), false
}

// unanswered notes that a place has not answered, so that the master of some places is away, unless another call has told it already.
func (t *turns) unanswered(i int, a asked, beside []int, now time.Time) {
	if a.probe || t.all[i].outage == nil {
		t.away(beside, now)
	}
}

// away notes that the master of some places does not answer. They rest, longer if it did not answer before.
func (t *turns) away(places []int, now time.Time) {
	o := &outage{prober: -1}
	for _, i := range places {
		if t.all[i].outage != nil {
			o = t.all[i].outage
		}
	}
	rest := restFirst
	for _, i := range places {
		rest = max(rest, min(2*t.all[i].rest, restMost))
	}
	for _, i := range places {
		p := &t.all[i]
		p.outage, p.open, p.rest, p.rests = o, false, rest, now.Add(rest)
	}
}

// back notes that an outage is over.
func (t *turns) back(o *outage) {
	for i := range t.all {
		if p := &t.all[i]; p.outage == o {
			p.outage, p.rests, p.rest = nil, time.Time{}, 0
		}
	}
}

// leave notes that no Fetch of a place is under way.
func (t *turns) leave(i int) {
	p := &t.all[i]
	if p.outage != nil && p.outage.prober == i {
		p.outage.prober = -1
	}
	p.busy = false
}

// reversed returns the numbers below n, a power of two, in an order in which neighbours are far from each other.
func reversed(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = int(bits.Reverse32(uint32(i)) >> (32 - bits.Len32(uint32(n-1))))
	}
	return all
}
