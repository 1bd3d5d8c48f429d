package node

import (
	"container/heap"
	"slices"
	"time"
)

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

// rest returns the calls that are left.
func (l *lane) rest() []*Call { return l.calls[l.head:] }

// forget removes the calls that are withdrawn.
func (l *lane) forget() {
	l.calls, l.head = remains(l.calls, copy(l.calls, slices.DeleteFunc(l.rest(), isWithdrawn))), 0
}

// remains returns the first so many calls, and keeps the others from being held in memory.
func remains(calls []*Call, n int) []*Call {
	clear(calls[n:])
	return calls[:n]
}

// urgent is a queue in the order of [Call.Due]: a lease with a short TTL does not wait behind many with a long one.
type urgent struct{ calls byDue }

// push adds a call.
func (u *urgent) push(c *Call) { heap.Push(&u.calls, c) }

// pop returns the next call, which must be there.
func (u *urgent) pop() *Call {
	c, _ := heap.Pop(&u.calls).(*Call)
	return c
}

// rest returns the calls that are left.
func (u *urgent) rest() []*Call { return u.calls }

// overdue reports whether the next call should have been answered by now.
func (u *urgent) overdue(now time.Time) bool { return len(u.calls) > 0 && !now.Before(u.calls[0].Due) }

// forget removes the calls that are withdrawn.
func (u *urgent) forget() {
	u.calls = slices.DeleteFunc(u.calls, isWithdrawn)
	heap.Init(&u.calls)
}

// isWithdrawn reports whether a call in a queue is withdrawn.
func isWithdrawn(c *Call) bool { return c.state != queued }

// byDue is a [heap.Interface].
type byDue []*Call

func (b *byDue) Len() int           { return len(*b) }
func (b *byDue) Less(i, j int) bool { return (*b)[i].Due.Before((*b)[j].Due) }
func (b *byDue) Swap(i, j int)      { (*b)[i], (*b)[j] = (*b)[j], (*b)[i] }

// Push adds a call at the end.
func (b *byDue) Push(c any) {
	if call, ok := c.(*Call); ok {
		*b = append(*b, call)
	}
}

// Pop removes the call at the end.
func (b *byDue) Pop() any {
	last := len(*b) - 1
	c := (*b)[last]
	(*b)[last] = nil
	*b = (*b)[:last]
	return c
}
