package pipeline

// queue holds the calls that wait to be sent. Calls that release or renew come before newcomers: otherwise many
// newcomers could delay them for too long. It does no I/O; the caller holds the Server's mutex.
type queue struct {
	first     lane
	newcomers lane
}

// lane is a queue in the order of arrival. It is a linked list, because calls are withdrawn from its middle.
type lane struct {
	head, tail *Call
	n          int
}

// push adds a call at the end.
func (l *lane) push(c *Call) {
	c.previous, c.next = l.tail, nil
	if l.tail == nil {
		l.head = c
	} else {
		l.tail.next = c
	}
	l.tail = c
	l.n++
}

// remove removes a call.
func (l *lane) remove(c *Call) {
	if c.previous == nil {
		l.head = c.next
	} else {
		c.previous.next = c.next
	}
	if c.next == nil {
		l.tail = c.previous
	} else {
		c.next.previous = c.previous
	}
	c.previous, c.next = nil, nil
	l.n--
}

// take moves calls from the front of the lane to the end of calls, up to limit in all, and sets their state.
func (l *lane) take(calls []*Call, limit int, s state) []*Call {
	for l.n > 0 && len(calls) < limit {
		c := l.head
		l.remove(c)
		c.state = s
		calls = append(calls, c)
	}
	return calls
}

// lane returns the lane of a call.
func (q *queue) lane(c *Call) *lane {
	if c.command.script.newcomer {
		return &q.newcomers
	}
	return &q.first
}

// add queues a call.
func (q *queue) add(c *Call) {
	c.state = queued
	q.lane(c).push(c)
}

// size returns how many calls wait.
func (q *queue) size() int { return q.first.n + q.newcomers.n }

// urgent reports whether calls wait that are not joint.
func (q *queue) urgent() bool {
	for _, l := range []*lane{&q.first, &q.newcomers} {
		for c := l.head; c != nil; c = c.next {
			if !c.command.batch().isJoint() {
				return true
			}
		}
	}
	return false
}

// take returns at most most calls for the next pipeline.
func (q *queue) take(most int) []*Call {
	calls := make([]*Call, 0, min(q.size(), most))
	return q.newcomers.take(q.first.take(calls, most, sent), most, sent)
}

// withdraw takes a call back, so that it is never sent, and reports whether that was in time.
func (q *queue) withdraw(c *Call) bool {
	if c.state != queued {
		return false
	}
	q.lane(c).remove(c)
	c.state = withdrawn
	return true
}

// reject removes all calls, or only newcomers, and marks them as answered.
func (q *queue) reject(all bool) (calls []*Call) {
	calls = q.newcomers.take(nil, q.newcomers.n, answered)
	if all {
		calls = q.first.take(calls, len(calls)+q.first.n, answered)
	}
	return calls
}
