package locking

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/lockwire"
)

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
