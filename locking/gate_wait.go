package locking

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	// courtesy is how long a process holds back after a notification if it may have rivals: see [rivals]. It is halved
	// with each race that the process has lost, so that the one that has waited longest comes first. It takes a
	// millisecond at least while the process has nothing else to do, because Go's timers then do.
	courtesy = 400 * time.Microsecond
	// yieldPause is how long the first waiter holds back for other processes that have subscribed to the release: once
	// notified, they need a round trip or two.
	yieldPause = time.Millisecond
	// shortestPause is the shortest useful duration of a timer.
	shortestPause = 50 * time.Microsecond
)

// wait acquires the keys in the order of arrival, or ahead of earlier callers: see [Wait] and [Collect].
func (g *Gate) wait(ctx context.Context, keys []string, opts Options, ahead bool) (*Lease, error) {
	keys, opts, err := prepareFor(ctx, g, keys, opts)
	if err != nil {
		return nil, err
	}
	// A caller that may hold a key through another Locker asks at once: in the queue it might wait for itself.
	w := g.enqueue(keys, opts, ahead || carriesAny(ctx, keys))
	opts.Notify = max(opts.Notify, waitNotify)
	_, watched := g.inner.(Watcher)
	pause := newPause(watched)
	t, ok := w.await(ctx)
	for ok {
		length := yieldPause
		var released <-chan struct{} // not while it yields, which it does because of a release
		switch {
		case t.lease != nil:
			return t.lease, nil
		case t.hold != nil:
			g.drain(w)
			lease, err := g.ask(ctx, t.hold, opts, w)
			if err == nil {
				return lease, nil
			}
			if ctx.Err() != nil && pause.last == nil {
				pause.last = g.obstacle(w)
			}
			if length, err = g.refused(ctx, w, pause, err); err != nil {
				return g.quit(w, err)
			}
			released = g.watch(ctx, w)
		default:
			g.watch(ctx, w) // before the next refusal, which a release may follow at once
			g.yielded(w)
		}
		t, w.notified, ok = g.sleep(ctx, w, length, released)
	}
	if pause.last == nil {
		pause.last = g.obstacle(w)
	}
	return g.quit(w, gaveUp(ctx, pause.last))
}

// await waits for a turn until ctx ends.
func (w *waiter) await(ctx context.Context) (t turn, ok bool) {
	select {
	case t = <-w.turn:
		return t, true
	case <-ctx.Done():
		return turn{}, false
	}
}

// sleep waits for a turn. After the pause, or after the notification of a release, it takes a turn if the waiter is
// first and no caller of this process has the keys.
func (g *Gate) sleep(
	ctx context.Context, w *waiter, length time.Duration, released <-chan struct{},
) (t turn, notified, ok bool) {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case t = <-w.turn:
		return t, false, true
	case <-ctx.Done():
		return turn{}, false, false
	case <-timer.C:
	case <-released:
		notified = true
		if length = g.courtesy(w); length < shortestPause {
			break
		}
		timer.Reset(length)
		select {
		case t = <-w.turn:
			return t, true, true
		case <-ctx.Done():
			return turn{}, false, false
		case <-timer.C:
		}
	}
	g.resume(w)
	t, ok = w.await(ctx)
	return t, notified, ok
}

// quit removes a waiter from the queues and returns err. If the waiter was handed a lease at this instant, quit returns
// the lease instead, because only its holder can notify subscribers of the release.
func (g *Gate) quit(w *waiter, err error) (*Lease, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var t turn
	if w.busy {
		t = <-w.turn
	}
	if t.lease != nil {
		return t.lease, nil
	}
	first := slices.DeleteFunc(slices.Clone(w.keys), func(key string) bool { return g.entries[key].queue[0] != w })
	g.dequeue(w)
	for _, key := range first {
		g.next(key, nil)
	}
	if t.hold != nil {
		g.free(t.hold, nil)
	}
	return nil, err
}

// watch returns the channel of the group's watch, which it opens if necessary. It returns nil if the inner Locker does
// not notify of releases.
func (g *Gate) watch(ctx context.Context, w *waiter) <-chan struct{} {
	watcher, ok := g.inner.(Watcher)
	if !ok {
		return nil
	}
	g.mu.Lock()
	released := w.group.released
	g.mu.Unlock()
	if released != nil {
		return released
	}
	released, stop, err := watcher.Watch(ctx, w.keys)
	if err != nil {
		return nil
	}
	g.mu.Lock()
	// If no waiter is left, the turn has come in the meantime, and nothing would stop the watch.
	if n := w.group; n.released == nil && n.waiters > 0 {
		n.released, n.stop, stop = released, stop, nil
	}
	released = w.group.released
	g.mu.Unlock()
	if stop != nil {
		stop()
	}
	return released
}

// drain discards earlier notifications, which the next attempt makes obsolete.
func (g *Gate) drain(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-w.group.released:
	default:
	}
}

// refused records a failed attempt. It returns the pause before the next one, or the error with which to give up.
func (g *Gate) refused(ctx context.Context, w *waiter, p *pause, err error) (time.Duration, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := w.group
	p.down = n.down
	if !n.down.IsZero() && n.down.Before(w.came) { // the patience of a waiter begins when it comes
		p.down = w.came
	}
	length, err := p.after(ctx, err)
	if err != nil {
		return 0, err
	}
	n.refused, n.down = p.last, p.down
	if w.notified && n.down.IsZero() { // another process was faster
		p.backoff.Reset()
		n.races++
		g.rivals.lost(n.name)
	}
	return length, nil
}

// courtesy returns for how long a notified waiter lets other processes go first.
func (g *Gate) courtesy(w *waiter) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.rivals.known(w.group.name) {
		return 0
	}
	return courtesy >> min(w.group.races, 10)
}

// obstacle returns the refusal of a waiter that gives up before the servers have refused it. It describes the holder of
// one of the keys, as far as this process knows. It is nil if there was nothing to wait for.
func (g *Gate) obstacle(w *waiter) error {
	if !w.delayed {
		return nil
	}
	var known error
	var here *hold
	g.mu.Lock()
	for _, key := range w.keys {
		e := g.entries[key]
		if e == nil {
			continue
		}
		if here == nil {
			here = e.hold
		}
		if known == nil && len(e.queue) > 0 {
			known = e.queue[0].group.refused
		}
	}
	g.mu.Unlock()
	if here != nil {
		if held := g.refusal(here, w.keys); held != nil {
			return held
		}
	}
	if held, ok := errors.AsType[*HeldError](known); ok && slices.Contains(w.keys, held.Key) {
		return held
	}
	// Another caller of this process is asking the servers.
	return &HeldError{Key: w.keys[0], Holder: Holder{Label: g.label, Remaining: time.Millisecond}}
}
