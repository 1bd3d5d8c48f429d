package locking

import (
	"slices"
	"time"
)

// handOff gives a lease that is being released to the first waiter, if that is fair and safe, and reports whether it
// did.
func (h *hold) handOff(l *Lease) bool {
	g := h.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.lease != l || h.freed || h.left == 0 || len(g.entries[h.keys[0]].queue) == 0 {
		return false
	}
	w := g.entries[h.keys[0]].queue[0]
	if w.busy || w.opts.MaxHold > h.opts.MaxHold || !slices.Equal(w.keys, h.keys) || !g.isFirst(w) {
		return false
	}
	next := l.next(h, w.opts)
	if next == nil {
		return false
	}
	w.group.refused, w.group.down = nil, time.Time{} // the servers have answered since
	g.dequeue(w)
	h.lease, h.label, h.since = next, w.opts.Label, time.Now()
	h.left--
	w.busy = true
	w.turn <- turn{lease: next}
	return true
}

// released ends the hold of a released lease, and returns whether other callers must be notified.
func (h *hold) released(l *Lease, notify bool) bool {
	g := h.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.lease != l {
		return notify
	}
	if !h.freed {
		for _, key := range h.keys {
			if e := g.entries[key]; notify && len(e.queue) > 0 {
				e.queue[0].group.yield = true
			}
		}
		g.notify(h)
		g.free(h, nil)
	}
	return notify || h.notifyUntil.After(time.Now())
}

// lost ends the hold of a lost lease, so that other callers of this process may try.
func (h *hold) lost(l *Lease) { h.released(l, false) }

// supersede ends the holds of leases that have ended. It is called when a script has got their keys since: they were
// released, although this process has no answer yet.
func (g *Gate) supersede(keys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		if e := g.entries[key]; e != nil && e.hold != nil && e.hold.lease != nil && e.hold.lease.Err() != nil {
			g.notify(e.hold)
			g.free(e.hold, nil)
		}
	}
}

func (h *hold) isOf(l Locker) bool { return l == Locker(h.gate) }

// notify tells the watches of this process that a hold ends. The caller holds the mutex.
func (g *Gate) notify(h *hold) {
	for _, key := range h.keys {
		for _, s := range g.subscribers[key] {
			s.notify()
		}
	}
}
