package locking

import (
	"slices"
	"time"
)

// handOff gives a lease that is being released to the first waiter, or else to the successor, if that is fair and safe, and
// reports whether it did.
func (h *hold) handOff(l *Lease) bool {
	g := h.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.lease != l || h.freed || h.left == 0 {
		return false
	}
	if s := h.successor; !h.isAwaited() {
		if s == nil || !h.handOver(l, s.opts) {
			return false
		}
		h.successor = nil
		s.turn <- h.lease
		return true
	}
	if len(g.entries[h.keys[0]].queue) == 0 {
		return false
	}
	w := g.entries[h.keys[0]].queue[0]
	if w.busy || w.opts.MaxHold > h.opts.MaxHold || !slices.Equal(w.keys, h.keys) || !g.isFirst(w) || !h.handOver(l, w.opts) {
		return false
	}
	w.group.refused, w.group.down = nil, time.Time{} // the servers have answered since
	g.dequeue(w)
	w.busy = true
	w.turn <- turn{lease: h.lease}
	return true
}

// handOver gives a hold the next lease, and reports false if there is none. The caller holds the mutex.
func (h *hold) handOver(l *Lease, opts Options) bool {
	next := l.next(h, opts)
	if next == nil {
		return false
	}
	h.lease, h.label, h.since = next, opts.Label, time.Now()
	h.left--
	return true
}

// releasing notes that a script is to release the lease and to notify those that were refused so far, and reports
// whether callers of this process wait for one of the keys.
func (h *hold) releasing() (awaited bool) {
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	h.notifyUntil = time.Time{}
	return h.isAwaited()
}

// isAwaited reports whether callers of this process wait for one of the keys. The caller holds the mutex.
func (h *hold) isAwaited() bool {
	return slices.ContainsFunc(h.keys, func(key string) bool {
		e := h.gate.entries[key]
		return e != nil && len(e.queue) > 0
	})
}

// released ends the hold of a released lease, and reports whether callers were refused that must be notified.
func (h *hold) released(l *Lease, notify bool) (refused bool) {
	g := h.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.lease != l {
		return false
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
	return h.notifyUntil.After(time.Now())
}

// lost ends the hold of a lost lease, so that other callers of this process may try.
func (h *hold) lost(l *Lease) { h.released(l, false) }

// last has a lease not be handed off.
func (h *hold) last(l *Lease) {
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	if h.lease == l {
		h.left = 0
	}
}

// supersede ends the holds of leases that have ended. It is called when a script has got their keys since, or has woken a task
// for them: they were released, although this process has no answer yet.
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
