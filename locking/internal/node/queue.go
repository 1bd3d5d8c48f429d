package node

import "time"

// How many calls of each batch newcomers get at least, if so many wait. With the releases that follow it is half of the batch, and while a renewal is due
// a thirty-second.
const (
	newcomersShare = maxBatch / 4
	leastShare     = maxBatch / 64
)

// queue holds the calls that wait for their turn: those that give something back go first, then renewals, then newcomers, for else nothing would
// be given back or renewed in time while many ask. Newcomers have a share of each batch all the same, so that renewals of many leases which come
// together do not stop everybody else; it is next to nothing while one of the renewals that wait is due. It decides only; the caller holds the mutex of the node.
type queue struct {
	leaving   lane
	renewals  urgent
	newcomers lane
	withdrawn int // among them
}

// calls is a part of a queue.
type calls interface {
	push(c *Call)
	pop() *Call
	rest() []*Call
	forget()
}

// first returns the parts before newcomers, in their order.
func (q *queue) first() []calls { return []calls{&q.leaving, &q.renewals} }

// all returns all parts.
func (q *queue) all() []calls { return []calls{&q.leaving, &q.renewals, &q.newcomers} }

// add queues a call up.
func (q *queue) add(c *Call) {
	c.state = queued
	switch c.command.script.class {
	case leaving:
		q.leaving.push(c)
	case renewal:
		q.renewals.push(c)
	case newcomer:
		q.newcomers.push(c)
	}
}

// waiting returns how many calls wait, with those that are withdrawn.
func (q *queue) waiting() int {
	return len(q.leaving.rest()) + len(q.renewals.rest()) + len(q.newcomers.rest())
}

// empty reports whether nothing waits, not even a call that is withdrawn.
func (q *queue) empty() bool { return q.waiting() == 0 }

// take returns the next calls to be sent, and marks them as sent.
func (q *queue) take(now time.Time) []*Call {
	batch := make([]*Call, 0, min(q.waiting(), maxBatch))
	share := newcomersShare
	if q.renewals.overdue(now) {
		share = leastShare
	}
	batch = q.fill(batch, maxBatch-min(share, len(q.newcomers.rest())), q.first()...)
	batch = q.fill(batch, maxBatch, &q.newcomers)
	return q.fill(batch, maxBatch, q.first()...) // if newcomers have gone
}

// fill adds calls of some parts to a batch, up to so many.
func (q *queue) fill(batch []*Call, most int, parts ...calls) []*Call {
	for _, p := range parts {
		for len(p.rest()) > 0 && len(batch) < most {
			if c := p.pop(); c.state == queued {
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
	if q.withdrawn > maxBatch && q.withdrawn > q.waiting()/2 {
		for _, p := range q.all() { // while a server hangs nothing is taken, and callers may come and go
			p.forget()
		}
		q.withdrawn = 0
	}
	return true
}

// turnAway removes the newcomers, who have a turn no more, or all calls.
func (q *queue) turnAway(all bool) (away []*Call) {
	parts := []calls{&q.newcomers}
	if all {
		parts = q.all()
	}
	for _, p := range parts {
		for len(p.rest()) > 0 {
			if c := p.pop(); c.state == queued {
				c.state = answered
				away = append(away, c)
			} else {
				q.withdrawn--
			}
		}
	}
	return away
}
