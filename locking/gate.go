package locking

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/lockwire"
)

// defaultHandOffs is how many times in a row a Gate hands a lease off.
const defaultHandOffs = 15

// GateOptions configures a [Gate]. The zero value uses the defaults.
type GateOptions struct {
	// HandOffs is how many times in a row a lease is handed off within the process before other processes get their turn:
	// 15 when zero, so that up to 16 holders follow each other. More than 255 count as 255, because a block has 256 tokens
	// at most. A negative value disables hand-offs.
	HandOffs int
}

// Gate is a [Locker] in front of another one. It keeps the callers of one process from competing at the servers.
//
// A key that this process holds is refused to its other callers without asking the servers. Callers of [Wait], [Do] and
// [Collect] form a queue for each key, and only the first caller asks the servers. If the next caller
// waits for the same keys, with the same TTL and no longer MaxHold, a release leaves the lock on the servers: the lease is
// handed off in memory, with a fencing token of its own from a reserved block. This stops after HandOffs times in a row, or
// when less than a third of the TTL is left, so that other processes get their turn.
//
// Other processes see the label of the first of these holders. A release that hands the lease off asks no server, so if
// the lock was lost, it is the next holder that finds out. A caller that waits for several keys gets its turn when it
// is first for each of them, and the callers behind it wait for it.
//
// Use one Gate per Locker. NewGate on a Gate makes another one in front of the same Locker, and the two know nothing of
// each other.
//
// It is safe for concurrent use.
type Gate struct {
	inner Locker
	block int
	label string // of this process, for holders without one

	mu          sync.Mutex // never taken while a lease's is held
	entries     map[string]*entry
	groups      map[string]*group
	subscribers map[string][]*subscriber // of Watch, by key
	rivals      rivals
}

// entry is the state of a key that a caller holds or waits for.
type entry struct {
	hold  *hold     // of the caller that has the key, or asks the servers for it; nil if there is none
	queue []*waiter // in the order of arrival
}

// NewGate returns a Gate in front of inner, which the caller still owns and must close. It panics if inner is nil.
func NewGate(inner Locker, opts GateOptions) *Gate {
	if inner == nil {
		panic("locking: NewGate needs a Locker")
	}
	if g, ok := inner.(*Gate); ok {
		inner = g.inner // two gates would both hand off the tokens of one block
	}
	handOffs := min(opts.HandOffs, lockwire.MaxBlock-1)
	if handOffs == 0 {
		handOffs = defaultHandOffs
	}
	return &Gate{
		inner: inner, block: max(handOffs, 0) + 1, label: lockwire.CleanLabel(DefaultLabel()),
		entries: map[string]*entry{}, groups: map[string]*group{}, subscribers: map[string][]*subscriber{},
	}
}

// Acquire makes one attempt: see [Locker]. A key that is held in this process is refused at once.
func (g *Gate) Acquire(ctx context.Context, keys []string, opts Options) (*Lease, error) {
	keys, opts, err := prepareFor(ctx, g, keys, opts)
	if err != nil {
		return nil, err
	}
	for {
		h, other := g.tryHold(keys, opts)
		if h != nil {
			return g.ask(ctx, h, opts, nil)
		}
		if held := g.refusal(other, keys); held != nil {
			if g.mustSubscribe(other, held.Key, opts.Notify) && g.subscribe(ctx, other, held.Key, opts) {
				continue // the key has become free
			}
			return nil, held
		}
		select { // another caller is asking the servers; the answer counts for this attempt, too
		case <-other.ready:
			if err := g.sharedAnswer(other, keys, opts); err != nil && !carriesAny(ctx, keys) {
				return nil, err
			}
		case <-ctx.Done():
			return nil, &OpError{Op: "acquire", Keys: keys, Err: ctx.Err()}
		}
	}
}

// sharedAnswer returns the error of another attempt, if an attempt for keys would get the same one: otherwise callers
// that came in the meantime would ask one after another.
func (g *Gate) sharedAnswer(h *hold, keys []string, opts Options) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if errors.Is(h.err, ErrUnavailable) {
		return h.err
	}
	held, ok := errors.AsType[*HeldError](h.err)
	if ok && opts.Notify <= h.opts.Notify && slices.Contains(keys, held.Key) {
		return held
	}
	return nil
}

// tryHold returns a hold on the keys, or another caller's hold on one of them.
func (g *Gate) tryHold(keys []string, opts Options) (mine, other *hold) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		e := g.entries[key]
		if e == nil || e.hold == nil {
			continue
		}
		if e.hold.lease != nil && opts.Notify > 0 {
			if until := time.Now().Add(opts.Notify); until.After(e.hold.notifyUntil) {
				e.hold.notifyUntil = until
			}
		}
		return nil, e.hold
	}
	return g.hold(keys, opts), nil
}

// ask asks the servers for the keys of a hold, on behalf of a waiter. w is nil for a caller that does not wait.
func (g *Gate) ask(ctx context.Context, h *hold, opts Options, w *waiter) (*Lease, error) {
	opts.block = g.block
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
	if err == nil && !lease.setHolder(h) {
		err = errors.New("locking: a gate stands in front of another gate: use one of them")
		go func() { _ = lease.Release(context.WithoutCancel(ctx)) }()
	}
	if err != nil {
		h.err = err
		g.free(h, w)
		return nil, err
	}
	if w != nil {
		if w.notified && w.group.races == 0 {
			g.rivals.won(w.group.name)
		}
		w.group.races, w.group.refused, w.group.down = 0, nil, time.Time{}
		g.dequeue(w)
	}
	h.lease, h.left = lease, min(lease.block(), g.block)-1
	close(h.ready)
	return lease, nil
}

// abandon ends a hold and its waiter's wait, after the inner Locker has panicked or ended the goroutine.
func (g *Gate) abandon(h *hold, w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w != nil {
		g.dequeue(w)
	}
	g.free(h, nil)
}

// refusal returns the error for a caller of keys that a hold excludes, or nil while the servers are being asked.
func (g *Gate) refusal(h *hold, keys []string) *HeldError {
	g.mu.Lock()
	lease, label, since, freed := h.lease, h.label, h.since, h.freed
	g.mu.Unlock()
	if lease == nil || freed {
		return nil
	}
	if label == "" {
		label = g.label
	}
	remaining := max(leasing.Until(lease.ValidUntil()), time.Millisecond)
	e := &HeldError{Holder: Holder{Label: lockwire.CleanLabel(label), Since: since, Remaining: remaining}}
	for _, key := range keys {
		if _, ok := slices.BinarySearch(h.keys, key); ok {
			e.Key = key
			e.Holder.Fence, _ = lease.FenceOf(ended, key) // 0 while it is not certain
			break
		}
	}
	return e
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
