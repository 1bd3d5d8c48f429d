package locking

import (
	"slices"
	"strings"
	"time"
)

// groupName returns a name for a list of keys, different for different lists.
func groupName(keys []string) string {
	if len(keys) == 1 && !strings.ContainsAny(keys[0], "%,") {
		return keys[0]
	}
	var b strings.Builder
	for _, key := range keys {
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(key, "%", "%0"), ",", "%1"))
		b.WriteByte(',')
	}
	return b.String()
}

// enqueue puts a caller at the end of the queue of each key, or, with ahead, before all waiters without it.
func (g *Gate) enqueue(keys []string, opts Options, ahead bool) *waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := groupName(keys)
	n := g.groups[name]
	if n == nil {
		n = &group{name: name}
		g.groups[name] = n
	}
	n.waiters++
	w := &waiter{keys: keys, opts: opts, group: n, came: time.Now(), turn: make(chan turn, 1), ahead: ahead}
	for _, key := range keys {
		e := g.entry(key)
		at := len(e.queue)
		if ahead {
			if i := slices.IndexFunc(e.queue, func(w *waiter) bool { return !w.ahead }); i >= 0 {
				at = i
			}
		}
		e.queue = slices.Insert(e.queue, at, w)
	}
	g.offer(w, true)
	w.delayed = !w.busy
	return w
}

// dequeue removes a waiter from the queue of each of its keys. The caller holds the mutex.
func (g *Gate) dequeue(w *waiter) {
	for _, key := range w.keys {
		e := g.entries[key]
		e.queue = slices.DeleteFunc(e.queue, func(other *waiter) bool { return other == w })
	}
	n := w.group
	n.waiters--
	if n.waiters > 0 {
		return
	}
	delete(g.groups, n.name)
	if n.stop != nil {
		n.stop()
	}
}

// isFirst reports whether a waiter is first in the queue of each of its keys. The caller holds the mutex.
func (g *Gate) isFirst(w *waiter) bool {
	for _, key := range w.keys {
		if g.entries[key].queue[0] != w {
			return false
		}
	}
	return true
}

// next gives the first waiter of a key its turn, unless it is except. The caller holds the mutex.
func (g *Gate) next(key string, except *waiter) {
	switch e := g.entries[key]; {
	case e == nil:
	case len(e.queue) > 0:
		if w := e.queue[0]; w != except {
			g.offer(w, true)
		}
	case e.hold == nil:
		delete(g.entries, key)
	}
}

// offer gives a waiter its turn if it is first for all of its keys and all of them are free. The caller holds the
// mutex.
func (g *Gate) offer(w *waiter, mayYield bool) {
	if w.busy || !g.isFirst(w) || !g.isFree(w.keys) {
		return
	}
	w.busy = true
	if mayYield && w.group.yield {
		w.group.yield = false
		w.turn <- turn{}
		return
	}
	w.turn <- turn{hold: g.hold(w.keys, w.opts)}
}

// resume offers a waiter its turn after a pause.
func (g *Gate) resume(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.offer(w, false)
}

// yielded ends a turn that let other processes go first.
func (g *Gate) yielded(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w.busy = false
}

// entry returns the state of a key, which it creates if necessary. The caller holds the mutex.
func (g *Gate) entry(key string) *entry {
	e := g.entries[key]
	if e == nil {
		e = &entry{}
		g.entries[key] = e
	}
	return e
}

// hold returns a new hold on keys that are free. The caller holds the mutex.
func (g *Gate) hold(keys []string, opts Options) *hold {
	h := &hold{gate: g, keys: keys, label: opts.Label, since: time.Now(), ready: make(chan struct{})}
	for _, key := range keys {
		g.entry(key).hold = h
	}
	return h
}

// isFree reports whether no caller of this process holds any of the keys. The caller holds the mutex.
func (g *Gate) isFree(keys []string) bool {
	for _, key := range keys {
		if e := g.entries[key]; e != nil && e.hold != nil {
			return false
		}
	}
	return true
}

// free ends a hold and gives the next waiter its turn, unless it is except, which has just had one. The caller holds
// the mutex.
func (g *Gate) free(h *hold, except *waiter) {
	if h.freed {
		return
	}
	h.freed = true
	if h.lease == nil {
		close(h.ready)
	}
	if h.successor != nil {
		h.successor.turn <- nil
		h.successor = nil
	}
	for _, key := range h.keys {
		g.entries[key].hold = nil
	}
	for _, key := range h.keys {
		g.next(key, except)
	}
}
