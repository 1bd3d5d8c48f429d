package locking

import (
	"slices"
	"time"
)

// hold is the right of one caller of this process to ask the servers for keys, and then the caller's lease. It is
// handed off with the lease.
type hold struct {
	gate  *Gate
	keys  []string
	label string
	since time.Time
	lease *Lease        // nil while the servers are being asked
	left  int           // how many times it may still be handed off
	ready chan struct{} // closed once the servers have answered
	freed bool

	opts Options // of the attempt
	err  error   // its outcome

	notifyUntil time.Time            // until when callers of this process have subscribed to the release
	subscribed  map[string]time.Time // until when this process has subscribed on the servers, by key
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
	for _, key := range h.keys {
		g.entries[key].hold = nil
	}
	for _, key := range h.keys {
		g.next(key, except)
	}
}

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
