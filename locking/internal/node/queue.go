package node

// queue holds the calls that wait for their turn. Those that end or extend what is held go before those that ask for more: else nothing
// would be given back or renewed in time while many ask. It decides only; the caller holds the mutex of the node.
type queue struct {
	first     lane
	newcomers lane
	withdrawn int // among them
}

// lane is a queue in the order of arrival.
type lane struct {
	calls []*Call
	head  int // of those that still wait
}

// push adds a call at the end.
func (l *lane) push(c *Call) {
	if l.head > len(l.calls)/2 && l.head >= maxBatch {
		l.calls = remains(l.calls, copy(l.calls, l.rest()))
		l.head = 0
	}
	l.calls = append(l.calls, c)
}

// pop returns the next call, which must be there.
func (l *lane) pop() *Call {
	c := l.calls[l.head]
	l.calls[l.head] = nil
	l.head++
	if l.head == len(l.calls) {
		l.calls, l.head = l.calls[:0], 0
	}
	return c
}

// waits reports whether a call is left.
func (l *lane) waits() bool { return l.head < len(l.calls) }

// rest returns the calls that are left.
func (l *lane) rest() []*Call { return l.calls[l.head:] }

// forget removes the calls that are withdrawn.
func (l *lane) forget() {
	kept := 0
	for _, c := range l.rest() {
		if c.state == queued {
			l.calls[kept] = c
			kept++
		}
	}
	l.calls, l.head = remains(l.calls, kept), 0
}

// remains returns the first so many calls, and keeps the others from being held in memory.
func remains(calls []*Call, n int) []*Call {
	clear(calls[n:])
	return calls[:n]
}

// add queues a call up.
func (q *queue) add(c *Call) {
	c.state = queued
	if c.command.script.newcomer {
		q.newcomers.push(c)
	} else {
		q.first.push(c)
	}
}

// empty reports whether nothing waits, not even a call that is withdrawn.
func (q *queue) empty() bool { return !q.first.waits() && !q.newcomers.waits() }

// take returns the next calls to be sent, and marks them as sent.
func (q *queue) take() []*Call {
	waiting := len(q.first.rest()) + len(q.newcomers.rest())
	batch := make([]*Call, 0, min(waiting, maxBatch))
	for _, l := range []*lane{&q.first, &q.newcomers} {
		for l.waits() && len(batch) < maxBatch {
			if c := l.pop(); c.state == queued {
				c.state = sent
				batch = append(batch, c)
			} else {
				q.withdrawn--
			}
		}
	}
	return batch
}

// withdraw takes a call back and reports whether that was in time: then it is never sent.
func (q *queue) withdraw(c *Call) bool {
	if c.state != queued {
		return false
	}
	c.state = withdrawn
	q.withdrawn++
	if waiting := len(q.first.rest()) + len(q.newcomers.rest()); q.withdrawn > maxBatch && q.withdrawn > waiting/2 {
		q.first.forget() // while a server hangs nothing is taken, and callers may come and go
		q.newcomers.forget()
		q.withdrawn = 0
	}
	return true
}

// turnAway removes the newcomers, who have a turn no more, or all calls.
func (q *queue) turnAway(all bool) (away []*Call) {
	lanes := []*lane{&q.newcomers}
	if all {
		lanes = append(lanes, &q.first)
	}
	for _, l := range lanes {
		for l.waits() {
			if c := l.pop(); c.state == queued {
				c.state = answered
				away = append(away, c)
			} else {
				q.withdrawn--
			}
		}
	}
	return away
}
