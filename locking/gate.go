package locking

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// DefaultHandOffs is how often in a row a [Gate] hands a lease off.
const DefaultHandOffs = 15

// GateOptions configures a [Gate]. The zero value has every default.
type GateOptions struct {
	// HandOffs is how often in a row a lease is handed off within the process before other processes get their turn. 15 when
	// zero, so that up to 16 holders follow each other; none when negative; more than 255 count as 255.
	HandOffs int
}

// Gate is a [Locker] in front of another one, which keeps the callers of one process from fighting over the servers.
//
// A key that this process holds is refused to others in it without asking the servers. Callers that wait, by [Wait] or [Do], stand in line
// in the order of their arrival, and only the first asks the servers. When a holder releases while another waits for the same keys with the
// same TTL (and no longer MaxHold, and no Block), the lock stays on the servers and the lease is handed off in memory, with a fencing token of
// its own from the block that was reserved. This ends after HandOffs in a row, and when less than a third of the TTL is left, so that other processes get their turn.
//
// To other processes the lock then shows the label of the first holder of such a row. The Release of a lease that is handed off asks no server:
// should the lock have been lost meanwhile, the next holder finds it out. A waiter for several keys is first in line only when it is first
// for each of them, and those behind it wait for it.
//
// Put one gate in front of a Locker: NewGate of a gate makes another one in front of the same Locker, and the two know nothing of each other.
//
// It is safe for use by many goroutines at the same time.
type Gate struct {
	inner Locker
	block int
	name  string // of this process, for those without a label

	mu    sync.Mutex // never taken while a lease's is held
	doors map[string]*door
	lines map[string]*line
	ears  map[string][]*listener // watches, by key
}

// door is what the gate knows of one key. There is none for a key that nobody holds or waits for.
type door struct {
	hold  *hold     // who holds the key in this process, or asks the servers for it
	queue []*waiter // in the order of arrival
}

// hold is the right of one caller of this process to ask the servers for keys, and then its lease. It is handed off with the lease.
type hold struct {
	keys  []string
	label string
	since time.Time
	lease *Lease        // nil while the servers are asked
	left  int           // how often it may still be handed off
	ready chan struct{} // closed once the servers have answered
	freed bool

	opts     Options   // that the servers were asked with
	err      error     // that they have answered with
	interest time.Time // until when the release must be announced

	marked map[string]time.Time // until when the servers know of such an interest, by key
}

// waiter is a caller that waits in line.
type waiter struct {
	keys []string
	opts Options
	line *line
	turn chan turn
	busy bool // it has been given a turn that it has not ended

	stood bool // it was not the first in line, or the keys were not free, when it came
	ahead bool // it holds other keys while it waits, so those who hold none wait behind it
}

// place returns where in line for the key a caller stands that comes now.
func (d *door) place(ahead bool) int {
	if !ahead {
		return len(d.queue)
	}
	for i, w := range d.queue {
		if !w.ahead {
			return i
		}
	}
	return len(d.queue)
}

// turn is what a waiter waits for: a lease, or the hold with which to ask the servers, or neither: let other processes ask first.
type turn struct {
	lease *Lease
	hold  *hold
}

// NewGate returns a gate in front of inner. The inner Locker stays the caller's. It panics when inner is nil.
func NewGate(inner Locker, opts GateOptions) *Gate {
	if inner == nil {
		panic("locking: NewGate needs a Locker")
	}
	if g, ok := inner.(*Gate); ok {
		inner = g.inner // two in a row would both hand off the tokens of one block
	}
	handOffs := min(opts.HandOffs, maxBlock-1)
	if handOffs == 0 {
		handOffs = DefaultHandOffs
	}
	return &Gate{
		inner: inner, block: max(handOffs, 0) + 1, name: cleanLabel(DefaultLabel()),
		doors: map[string]*door{}, lines: map[string]*line{}, ears: map[string][]*listener{},
	}
}

// Acquire makes one attempt: see [Locker]. A key that is held in this process is refused at once.
func (g *Gate) Acquire(ctx context.Context, keys []string, opts Options) (*Lease, error) {
	keys, opts, err := Prepare(keys, opts)
	if err != nil {
		return nil, err
	}
	if err := notReentrant(ctx, g, keys); err != nil {
		return nil, err
	}
	for {
		h, other := g.enter(keys, opts)
		if h != nil {
			return g.ask(ctx, h, opts, nil)
		}
		if held := g.refusal(other, keys); held != nil {
			if opts.Notify > 0 && g.mustMark(other, held.Key, opts.Notify) && g.mark(ctx, other, held.Key, opts) {
				continue // the key has become free
			}
			return nil, held
		}
		select { // another asks the servers; what they say to it is an answer to this attempt too
		case <-other.ready:
			if err := g.sharedAnswer(other, keys, opts); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, &OpError{Op: "acquire", Keys: keys, Err: ctx.Err()}
		}
	}
}

// sharedAnswer returns the error that the servers have answered another attempt with, if they would say the same to one for keys. Otherwise those
// who have come meanwhile would ask one after the other.
func (g *Gate) sharedAnswer(h *hold, keys []string, opts Options) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if errors.Is(h.err, ErrUnavailable) {
		return h.err
	}
	if held, ok := errors.AsType[*HeldError](h.err); ok && opts.Notify <= h.opts.Notify && slices.Contains(keys, held.Key) {
		return held
	}
	return nil
}

// enter takes the keys in this process, or returns who has one of them.
func (g *Gate) enter(keys []string, opts Options) (mine, other *hold) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		d := g.doors[key]
		if d == nil || d.hold == nil {
			continue
		}
		if d.hold.lease != nil && opts.Notify > 0 {
			if until := time.Now().Add(opts.Notify); until.After(d.hold.interest) {
				d.hold.interest = until
			}
		}
		return nil, d.hold
	}
	return g.take(keys, opts), nil
}

// take makes a hold on keys that are free. The caller holds the mutex.
func (g *Gate) take(keys []string, opts Options) *hold {
	h := &hold{keys: keys, label: opts.Label, since: time.Now(), ready: make(chan struct{})}
	for _, key := range keys {
		g.door(key).hold = h
	}
	return h
}

// isFree reports whether nobody in this process holds one of the keys. The caller holds the mutex.
func (g *Gate) isFree(keys []string) bool {
	for _, key := range keys {
		if d := g.doors[key]; d != nil && d.hold != nil {
			return false
		}
	}
	return true
}

// door returns what is known of a key. The caller holds the mutex.
func (g *Gate) door(key string) *door {
	d := g.doors[key]
	if d == nil {
		d = &door{}
		g.doors[key] = d
	}
	return d
}

// ask asks the servers for the keys of a hold, for a waiter or for a caller that does not wait (nil).
func (g *Gate) ask(ctx context.Context, h *hold, opts Options, w *waiter) (*Lease, error) {
	block := g.block
	if opts.Block > 1 { // the caller wants the whole block
		block = 1
	} else {
		opts.Block = g.block
	}
	h.opts = opts
	answered := false
	defer func() {
		if !answered {
			g.abandon(h, w)
		}
	}()
	lease, err := g.inner.Acquire(ctx, h.keys, opts)
	answered = true
	g.mu.Lock()
	defer g.mu.Unlock()
	if w != nil {
		w.busy = false
	}
	if err == nil && !lease.enter(func() { g.lost(h, lease) }, h, g, block > 1) {
		err = errors.New("locking: a gate stands in front of another gate: use one of them")
		go func() { _ = lease.Release(context.WithoutCancel(ctx)) }()
	}
	if err != nil {
		h.err = err
		g.free(h, w)
		return nil, err
	}
	if w != nil {
		g.dequeue(w)
	}
	h.lease, h.left = lease, min(lease.block(), block)-1
	close(h.ready)
	return lease, nil
}

// abandon ends a hold, and the wait that it is for, after the inner locker has panicked or ended the goroutine.
func (g *Gate) abandon(h *hold, w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w != nil {
		g.dequeue(w)
	}
	g.free(h, nil)
}

// refusal returns the error for a caller that is refused by a hold on one of its keys, or nil while the servers are asked.
func (g *Gate) refusal(h *hold, keys []string) *HeldError {
	g.mu.Lock()
	lease, label, since, freed := h.lease, h.label, h.since, h.freed
	g.mu.Unlock()
	if lease == nil || freed {
		return nil
	}
	if label == "" {
		label = g.name
	}
	e := &HeldError{Holder: Holder{Label: cleanLabel(label), Since: since, Remaining: max(time.Until(lease.ValidUntil()), time.Millisecond)}}
	for _, key := range keys {
		if _, ok := slices.BinarySearch(h.keys, key); ok {
			e.Key = key
			e.Holder.Fence, _ = lease.FenceOf(ended, key) // 0 while it is not certain
			break
		}
	}
	return e
}

// free ends a hold, and gives the turn to whoever is first in line then, except to one who has just had it. The caller holds the
// mutex.
func (g *Gate) free(h *hold, except *waiter) {
	if h.freed {
		return
	}
	h.freed = true
	if h.lease == nil {
		close(h.ready)
	}
	for _, key := range h.keys {
		g.doors[key].hold = nil
	}
	for _, key := range h.keys {
		g.next(key, except)
	}
}

// next gives the turn to the first in line for a key, if it is first for all of its keys and all of them are free. The caller
// holds the mutex.
func (g *Gate) next(key string, except *waiter) {
	d := g.doors[key]
	if d == nil {
		return
	}
	if d.hold == nil && len(d.queue) == 0 {
		delete(g.doors, key)
		return
	}
	if len(d.queue) == 0 {
		return
	}
	w := d.queue[0]
	if w == except || w.busy || !g.isFirst(w) || !g.isFree(w.keys) {
		return
	}
	w.busy = true
	if w.line.yield {
		w.line.yield = false
		w.turn <- turn{}
		return
	}
	w.turn <- turn{hold: g.take(w.keys, w.opts)}
}

// isFirst reports whether a waiter is first in line for all of its keys. The caller holds the mutex.
func (g *Gate) isFirst(w *waiter) bool {
	for _, key := range w.keys {
		if g.doors[key].queue[0] != w {
			return false
		}
	}
	return true
}

// dequeue takes a waiter out of the line for each of its keys. The caller holds the mutex.
func (g *Gate) dequeue(w *waiter) {
	for _, key := range w.keys {
		d := g.doors[key]
		d.queue = slices.DeleteFunc(d.queue, func(other *waiter) bool { return other == w })
	}
	w.line.leave(g)
}

// handOff gives a lease that is being released to the first in line, if that is fair and safe. It reports whether it has.
func (g *Gate) handOff(h *hold, l *Lease) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.lease != l || h.freed || h.left == 0 || len(g.doors[h.keys[0]].queue) == 0 {
		return false
	}
	w := g.doors[h.keys[0]].queue[0]
	if w.busy || w.opts.Block > 1 || w.opts.MaxHold > h.opts.MaxHold || !slices.Equal(w.keys, h.keys) || !g.isFirst(w) {
		return false
	}
	next := l.passOn(w.opts)
	if next == nil {
		return false
	}
	w.line.refused, w.line.down = nil, time.Time{} // the servers have answered since
	g.dequeue(w)
	h.lease, h.label, h.since = next, w.opts.Label, time.Now()
	h.left--
	_ = next.enter(func() { g.lost(h, next) }, h, g, true) // it is in no other gate
	w.busy = true
	w.turn <- turn{lease: next}
	return true
}

// released ends the hold of a lease that the servers have released, and reports whether somebody must be told of it.
func (g *Gate) released(h *hold, l *Lease, contended bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.lease != l {
		return contended
	}
	if !h.freed {
		for _, key := range h.keys {
			if d := g.doors[key]; contended && len(d.queue) > 0 {
				d.queue[0].line.yield = true
			}
		}
		g.announce(h)
		g.free(h, nil)
	}
	return contended || h.interest.After(time.Now())
}

// lost ends the hold of a lease that can no longer be trusted, so that others in this process may try.
func (g *Gate) lost(h *hold, l *Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.lease == l && !h.freed {
		g.announce(h)
		g.free(h, nil)
	}
}
