package locking

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

const (
	// courtesy is how long a process holds back after a notification when it has not lost a race yet. It is halved with
	// each race that it loses, so the process that has waited longest comes first.
	courtesy = 400 * time.Microsecond
	// yieldPause is how long the first waiter lets other processes go first that have subscribed to the release. They
	// are notified of it, and need a round trip or two.
	yieldPause = time.Millisecond
	// shortestPause is what a timer can keep.
	shortestPause = 50 * time.Microsecond
)

// waiter is a caller that waits in the queues of its keys.
type waiter struct {
	keys  []string
	opts  Options
	group *group
	came  time.Time
	turn  chan turn
	busy  bool // it was given a turn that it has not ended

	delayed bool // it was not first, or its keys were not free, when it came
	ahead   bool // it holds other keys while it waits, so callers that hold none wait behind it
}

// turn is what a waiter waits for: a lease, or a hold with which to ask the servers, or neither: then other processes
// go first.
type turn struct {
	lease *Lease
	hold  *hold
}

// group is what waiters for the same keys share.
type group struct {
	name     string
	waiters  int
	released <-chan struct{} // a watch of the inner Locker, once a waiter was refused
	stop     func()          // of the watch
	refused  error           // the last answer of the servers
	down     time.Time       // since when they cannot be reached
	races    int             // lost in a row: notifications that led to a refusal
	yield    bool            // other processes have subscribed: the first waiter lets them go first
}

// groupName tells lists of keys apart.
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

// wait acquires the keys in the order of arrival, or ahead of callers that came before: see [Wait] and [Collect].
func (g *Gate) wait(ctx context.Context, keys []string, opts Options, ahead bool) (*Lease, error) {
	keys, opts, err := prepareFor(ctx, g, keys, opts)
	if err != nil {
		return nil, err
	}
	w := g.enqueue(keys, opts, ahead)
	opts.Notify = max(opts.Notify, waitNotify)
	_, watched := g.inner.(Watcher)
	pause := newPause(watched)
	notified := false
	t, ok := w.await(ctx)
	for ok {
		length := yieldPause
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
			if length, err = g.refused(ctx, w, pause, err, notified); err != nil {
				return g.quit(w, err)
			}
		default:
			g.yielded(w)
		}
		t, notified, ok = g.sleep(ctx, w, length)
	}
	if pause.last == nil {
		pause.last = g.obstacle(w)
	}
	return g.quit(w, gaveUp(ctx, pause.last))
}

// enqueue puts a caller at the end of the queue of each key, or ahead of all waiters that were not put ahead
// themselves.
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
	g.next(keys[0], nil)
	w.delayed = !w.busy
	return w
}

// dequeue takes a waiter out of the queue of each of its keys. The caller holds the mutex.
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

// next gives the first waiter for a key its turn, unless that is except. The caller holds the mutex.
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

// offer gives a waiter its turn, if it is first for all of its keys and all of them are free. The caller holds the
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

// resume gives a waiter its turn after a pause, when it may have it.
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

// await waits for a turn until ctx has ended.
func (w *waiter) await(ctx context.Context) (t turn, ok bool) {
	select {
	case t = <-w.turn:
		return t, true
	case <-ctx.Done():
		return turn{}, false
	}
}

// sleep waits for a turn. It comes after the pause at the latest if the waiter is first then and no caller of this
// process has the keys, and early when a release is notified.
func (g *Gate) sleep(ctx context.Context, w *waiter, length time.Duration) (t turn, notified, ok bool) {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case t = <-w.turn:
		return t, false, true
	case <-ctx.Done():
		return turn{}, false, false
	case <-timer.C:
	case <-g.watch(ctx, w):
		notified = true
		if length = courtesy >> min(g.races(w), 10); length < shortestPause {
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

// quit takes a waiter out of the queues and returns err, or the lease that it was handed at this instant: keys must not
// be given back without notifying subscribers, and only the holder of a lease can do that.
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
	g.dequeue(w)
	for _, key := range w.keys {
		g.next(key, nil)
	}
	if t.hold != nil {
		g.free(t.hold, nil)
	}
	return nil, err
}

// watch returns the channel of the group's watch, which it opens when there is none; nil when releases are not
// notified.
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
	// When no waiter is left, the turn has come meanwhile, and nothing would stop the watch.
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

// drain forgets earlier notifications: the next attempt sees what they told.
func (g *Gate) drain(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-w.group.released:
	default:
	}
}

// refused records an attempt that failed, and returns the length of the pause before the next one, or the error to give
// up with.
func (g *Gate) refused(ctx context.Context, w *waiter, p *pause, err error, notified bool) (time.Duration, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := w.group
	p.down = n.down
	if !n.down.IsZero() && n.down.Before(w.came) { // patience counts from when this waiter came
		p.down = w.came
	}
	length, err := p.after(ctx, err)
	if err != nil {
		return 0, err
	}
	n.refused, n.down = p.last, p.down
	if notified { // another process was faster
		p.backoff.Reset()
		n.races++
	}
	return length, nil
}

// races returns how often in a row another process was faster.
func (g *Gate) races(w *waiter) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return w.group.races
}

// obstacle returns the refusal of a waiter that gives up before the servers have refused it: who has one of its keys,
// as far as this process knows. It is nil when there was nothing to wait for.
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
	// This process is asking the servers.
	return &HeldError{Key: w.keys[0], Holder: Holder{Label: g.label, Remaining: time.Millisecond}}
}
