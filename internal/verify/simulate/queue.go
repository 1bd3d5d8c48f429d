package simulate

// kind is what an event does.
type kind uint8

const (
	atNode       kind = iota // a message reaches a node
	atClient                 // a message reaches a client
	lateRelease              // an acquire had no answer in time: release that node
	begin                    // a slot makes its next attempt
	send                     // a stalled attempt sends its requests
	acquireOver              // the time for the answers to an acquire is over
	renewOver                // the time for the answers to the renewals of a commit is over
	extendOver               // the time for the answers to an extension is over
	tick                     // a lease looks at its clocks, and is extended
	handOff                  // the holder is done: hand off or release
	reclaim                  // nodes that have failed are asked for the lock of a lease
	clientPauses             // the rest is done to machines
	clientCrashes
	clientJumps
	nodeCrashes
	nodeStarts
	nodeFailsOver
	nodeJumps
	nodeParts   // a node is cut off, and keeps what it has
	nodeReturns // it can be reached again
	nodeLeaps   // the wall clock of a node is set beyond the end of every lock, and back
)

// event is something that happens at a certain time.
type event struct {
	at    int64
	order uint32 // of events at the same time
	ref   uint32 // a message, or the attempt that a timer is for
	arg   uint32
	slot  int16 // or a client
	kind  kind
	node  uint8
}

func (e *event) before(f *event) bool { return e.at < f.at || e.at == f.at && e.order < f.order }

// queue is a heap of events with four children to a parent.
type queue struct {
	heap  []event
	order uint32
}

func (q *queue) push(e event) {
	q.order++
	e.order = q.order
	q.heap = append(q.heap, e)
	h := q.heap
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(&h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
}

func (q *queue) pop() event {
	h := q.heap
	first, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	q.heap = h
	i := 0
	for {
		child := 4*i + 1
		if child >= len(h) {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, len(h)); c++ {
			if h[c].before(&h[least]) {
				least = c
			}
		}
		if !h[least].before(&last) {
			break
		}
		h[i] = h[least]
		i = least
	}
	if len(h) > 0 {
		h[i] = last
	}
	return first
}
