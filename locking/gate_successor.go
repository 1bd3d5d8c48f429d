package locking

import (
	"context"
	"slices"
)

// successor is a caller that gets the next lease of the keys of a hold, or none.
type successor struct {
	opts Options
	turn chan *Lease // has a value once that is known
}

// succeed has a caller follow the present lease of exactly these keys in this process. Once that lease is released, turn has
// the lease that was handed off to the caller, or nil if it was not: then the caller has no claim to the keys. ok is false if
// there is no such lease, it is not to be handed off to these options, or others wait for it. leave ends the wait; a lease
// that has come by then is in turn.
func (g *Gate) succeed(keys []string, opts Options) (turn <-chan *Lease, leave func(), ok bool) {
	keys, opts, err := prepareFor(context.Background(), g, keys, opts)
	if err != nil {
		return nil, nil, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.entries[keys[0]]
	if e == nil || e.hold == nil || !e.hold.mayHandOff(keys, opts) || e.hold.successor != nil || e.hold.isAwaited() {
		return nil, nil, false
	}
	h, s := e.hold, &successor{opts: opts, turn: make(chan *Lease, 1)}
	h.successor = s
	return s.turn, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if h.successor == s {
			h.successor = nil
		}
	}, true
}

// mayHandOff reports whether the lease of a hold may be handed off to a caller of some keys. The caller holds the mutex.
func (h *hold) mayHandOff(keys []string, opts Options) bool {
	return h.lease != nil && !h.freed && h.left > 0 && h.lease.Err() == nil && h.opts.TTL == opts.TTL &&
		h.opts.MaxHold >= opts.MaxHold && slices.Equal(h.keys, keys)
}
