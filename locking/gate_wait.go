package locking

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

const (
	// courtesy is how long a process holds back after a notice that it has not yet lost a race for. It is halved with each race
	// that it loses, so the one that has waited longest comes first.
	courtesy = 400 * time.Microsecond
	// yieldPause is how long the next in line lets other processes go first that have asked for the keys. They are told of the release, and
	// need a round trip or two.
	yieldPause = time.Millisecond
	// leastPause is the shortest pause that a timer keeps.
	leastPause = 50 * time.Microsecond
)

// line is what waiters for the same keys share.
type line struct {
	name    string
	waiters int
	watch   *Watch    // on the inner locker's releases, once somebody was refused
	refused error     // what the servers last said to one of them
	down    time.Time // since when they cannot be reached
	races   int       // lost in a row: notices that led to a refusal
	yield   bool      // other processes have asked for the keys: the next in line lets them try first
}

// lineName tells lists of keys apart.
func lineName(keys []string) string {
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

// leave counts a waiter out. The caller holds the gate's mutex.
func (n *line) leave(g *Gate) {
	n.waiters--
	if n.waiters > 0 {
		return
	}
	delete(g.lines, n.name)
	if n.watch != nil {
		n.watch.Close()
	}
}

// wait acquires the keys in the order of arrival, or ahead of those who came before: see [Wait] and [Collect].
func (g *Gate) wait(ctx context.Context, keys []string, opts Options, ahead bool) (*Lease, error) {
	keys, opts, err := Prepare(keys, opts)
	if err != nil {
		return nil, err
	}
	if err := notReentrant(ctx, g, keys); err != nil {
		return nil, err
	}
	w := g.enqueue(keys, opts, ahead)
	opts.Notify = max(opts.Notify, waitInterest)
	began := time.Now()
	_, announced := g.inner.(Watcher)
	pause := newPause(announced)
	noticed := false
	t, ok := w.await(ctx)
	for ok {
		var length time.Duration
		switch {
		case t.lease != nil:
			return t.lease, nil
		case t.hold != nil:
			w.line.drain(g)
			lease, err := g.ask(ctx, t.hold, opts, w)
			if err == nil {
				w.line.won(g)
				return lease, nil
			}
			if ctx.Err() != nil && pause.last == nil {
				pause.last = g.obstacle(w)
			}
			pause.down = w.line.downSince(g, began)
			if length, err = pause.after(ctx, err); err != nil {
				return g.quit(w, err)
			}
			w.line.failed(g, pause)
			if noticed {
				pause.backoff.Reset()
				w.line.outrun(g)
			}
		default:
			g.yielded(w)
			length = yieldPause
		}
		t, noticed, ok = g.doze(ctx, w, length)
	}
	if pause.last == nil {
		pause.last = g.obstacle(w)
	}
	return g.quit(w, gaveUp(ctx, pause.last))
}

// enqueue puts a caller in line for each of its keys: at the end, or ahead of all but those who were put there before.
func (g *Gate) enqueue(keys []string, opts Options, ahead bool) *waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := lineName(keys)
	n := g.lines[name]
	if n == nil {
		n = &line{name: name}
		g.lines[name] = n
	}
	n.waiters++
	w := &waiter{keys: keys, opts: opts, line: n, turn: make(chan turn, 1), ahead: ahead}
	for _, key := range keys {
		d := g.door(key)
		d.queue = slices.Insert(d.queue, d.place(ahead), w)
	}
	g.next(keys[0], nil)
	w.stood = !w.busy
	return w
}

// obstacle returns the refusal of a waiter that gives up before the servers have refused it: who has one of its keys, as far as this
// process knows. It is nil when there was nothing to wait for.
func (g *Gate) obstacle(w *waiter) error {
	if !w.stood {
		return nil
	}
	var known error
	var here *hold
	g.mu.Lock()
	for _, key := range w.keys {
		d := g.doors[key]
		if d == nil {
			continue
		}
		if here == nil {
			here = d.hold
		}
		if known == nil && len(d.queue) > 0 {
			known = d.queue[0].line.refused
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
	return &HeldError{Key: w.keys[0], Holder: Holder{Label: g.name, Remaining: time.Millisecond}} // who is asking the servers
}

// await waits for a turn, until ctx has ended.
func (w *waiter) await(ctx context.Context) (t turn, ok bool) {
	select {
	case t = <-w.turn:
		return t, true
	case <-ctx.Done():
		return turn{}, false
	}
}

// yielded ends a turn that was for letting others ask first.
func (g *Gate) yielded(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w.busy = false
}

// doze waits for a turn, which comes after the pause at the latest if the waiter is first in line then and nobody in this process has the keys,
// and early when their release is announced.
func (g *Gate) doze(ctx context.Context, w *waiter, length time.Duration) (t turn, noticed, ok bool) {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case t = <-w.turn:
		return t, false, true
	case <-ctx.Done():
		return turn{}, false, false
	case <-timer.C:
	case <-g.notices(ctx, w):
		noticed = true
		if length = courtesy >> min(w.line.racesLost(g), 10); length < leastPause {
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
	return t, noticed, ok
}

// resume gives a waiter its turn if it may have it now.
func (g *Gate) resume(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !w.busy && g.isFirst(w) && g.isFree(w.keys) {
		w.busy = true
		w.turn <- turn{hold: g.take(w.keys, w.opts)}
	}
}

// quit takes a waiter out of line and returns err, or the lease that it was handed at this very moment: who gives it up must not let go of
// keys without telling those who asked to be told, and only the holder of a lease can.
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

// notices returns the channel of the line's watch, which it opens when there is none; nil when releases are not announced.
func (g *Gate) notices(ctx context.Context, w *waiter) <-chan struct{} {
	watcher, ok := g.inner.(Watcher)
	if !ok {
		return nil
	}
	g.mu.Lock()
	watch := w.line.watch
	g.mu.Unlock()
	if watch == nil {
		fresh, err := watcher.Watch(ctx, w.keys)
		if err != nil {
			return nil
		}
		g.mu.Lock()
		if w.line.watch == nil && w.line.waiters > 0 { // else the turn has come meanwhile, and nobody would close it
			w.line.watch, fresh = fresh, nil
		}
		watch = w.line.watch
		g.mu.Unlock()
		if fresh != nil {
			fresh.Close()
		}
		if watch == nil {
			return nil
		}
	}
	return watch.C
}

// drain forgets what was announced so far: the next attempt sees it.
func (n *line) drain(g *Gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n.watch == nil {
		return
	}
	select {
	case <-n.watch.C:
	default:
	}
}

// won notes that a waiter of this line has got the keys from the servers.
func (n *line) won(g *Gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n.races, n.refused, n.down = 0, nil, time.Time{}
}

// outrun notes that another process was faster after a notice.
func (n *line) outrun(g *Gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n.races++
}

// failed notes what a waiter of this line has learned from an attempt that failed.
func (n *line) failed(g *Gate, p *pause) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n.refused, n.down = p.last, p.down
}

// downSince returns since when a waiter that has come at a time stands in front of servers that cannot be reached; zero when they could be,
// when they were last asked.
func (n *line) downSince(g *Gate, came time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n.down.IsZero() || n.down.After(came) {
		return n.down
	}
	return came
}

// racesLost returns how often in a row another process was faster.
func (n *line) racesLost(g *Gate) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return n.races
}
