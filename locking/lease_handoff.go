package locking

import (
	"errors"
	"time"
)

// Block returns how many tokens in a row are reserved for the holder, of which [Lease.Fence] is the first: what [Options].Block asked for, or 1 from
// a backend that reserves none.
func (l *Lease) Block() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shared {
		return 1
	}
	return l.block()
}

// HandedOff reports, after Release, whether a [Gate] has given the keys to the next waiter of this process: they are still locked, and
// [Lease.ShouldNotify] tells nothing.
func (l *Lease) HandedOff() bool { return l.handedOff.Load() }

// block returns how many tokens the backend has reserved.
func (l *Lease) block() int {
	if g, ok := l.grant.(interface{ Block() int }); ok {
		return g.Block()
	}
	return 1
}

// age returns how long ago the lease's first request was about to be sent.
func (l *Lease) age() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watch.elapsed()
}

// enter makes the lease one of a gate. It reports whether it is in no other one.
func (l *Lease) enter(onLoss func(), h *hold, g *Gate, shared bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gate != nil {
		return false
	}
	l.gate, l.hold, l.onLoss, l.shared = g, h, onLoss, shared
	if errors.Is(l.cause, ErrLost) {
		go onLoss()
	}
	return true
}

// passOn ends the lease and returns one with the next token for another holder, or nil when it is over or less than a third of its TTL is
// left. So also near MaxHold: a renewal for less than the TTL may be on its way, and it would cut short what the next holder renews.
func (l *Lease) passOn(opts Options) *Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.check()
	if l.cause != nil || l.term.ttl != opts.TTL || l.term.until-now < l.term.ttl/3 || l.term.maxHold-now < l.term.ttl {
		return nil
	}
	next := &Lease{
		grant: l.grant, keys: l.keys, offset: l.offset + 1, watch: l.watch, pulse: l.pulse,
		term: l.term.passedOn(now, opts.MaxHold),
	}
	next.start(next.term.next(now).sleep)
	l.end(ErrReleased)
	return next
}
