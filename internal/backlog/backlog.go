// Package backlog repeats calls whose outcome is not known until their server has answered them: the oldest first, many
// at the same time while it answers, and one at a time with growing pauses while it does not.
package backlog

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Defaults of [Options], and the pauses after a failure.
const (
	defaultMost   = 1 << 17
	defaultAtOnce = 128
	firstPause    = 20 * time.Millisecond
	longestPause  = 500 * time.Millisecond
)

// Options configures a [Backlog]. The zero value uses the defaults.
type Options struct {
	// Most is how many calls are kept; 131 072 when zero.
	Most int
	// AtOnce is how many calls are under way at the same time while the server answers; 128 when zero.
	AtOnce int
	// AfterClose is how long a call may be repeated that is added after Close; not at all when zero.
	AfterClose time.Duration
}

// Call is a call that is repeated.
type Call struct {
	// Try makes the call once, and returns nil once nothing is left to do. ctx ends with the call's time, and with Close.
	Try func(ctx context.Context) error
	// Over is called once: after Try has returned nil, when the call's time is over, or when the Backlog is closed.
	Over func()
	// For is how long the call is repeated.
	For time.Duration

	until time.Time
	due   time.Time // when it may be tried again
	rests *backoff.ExponentialBackOff
}

// Backlog has calls that are repeated. It is safe for concurrent use.
type Backlog struct {
	opts Options

	mu      sync.Mutex
	ctx     context.Context
	cancel  context.CancelFunc
	closed  bool
	calls   int     // that are not over
	ready   []*Call // in the order of their age
	resting []*Call // after a failure, in the order in which they are due
	running int
	pauses  *backoff.ExponentialBackOff // while the server does not answer, else nil
	open    time.Time                   // when the next call may be tried then
	timer   *time.Timer
	none    chan struct{} // closed when no call is left; nil while nothing waits for that
}

// New returns an empty Backlog.
func New(opts Options) *Backlog {
	if opts.Most == 0 {
		opts.Most = defaultMost
	}
	if opts.AtOnce == 0 {
		opts.AtOnce = defaultAtOnce
	}
	b := &Backlog{opts: opts}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Add has a call tried at once if the server answers, or, when rests is true, after a pause. It reports false, and does
// nothing, if there are too many calls, or if the Backlog is closed and has no time for later ones.
func (b *Backlog) Add(c *Call, rests bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls >= b.opts.Most || b.closed && b.opts.AfterClose == 0 {
		return false
	}
	if b.closed {
		c.For = min(c.For, b.opts.AfterClose)
	}
	now := time.Now()
	c.until = now.Add(c.For)
	b.calls++
	if rests {
		b.rest(c, now)
	} else {
		b.ready = append(b.ready, c)
	}
	b.start(now)
	return true
}

// Closed reports whether Close was called.
func (b *Backlog) Closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// Wait returns when no call is left, when ctx ends, or after d.
func (b *Backlog) Wait(ctx context.Context, d time.Duration) {
	b.mu.Lock()
	if b.calls == 0 {
		b.mu.Unlock()
		return
	}
	if b.none == nil {
		b.none = make(chan struct{})
	}
	none := b.none
	b.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-none:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Close ends all calls. It does not wait for those under way.
func (b *Backlog) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.closed = true
	b.cancel()
	b.ready, b.resting = append(b.ready, b.resting...), nil
	for _, c := range b.ready {
		c.until = time.Time{}
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.start(time.Now())
}

// rest puts a call aside after a failure. The caller holds the mutex.
func (b *Backlog) rest(c *Call, now time.Time) {
	if c.rests == nil {
		c.rests = pauses()
	}
	if c.due = now.Add(c.rests.NextBackOff()); c.due.After(c.until) {
		c.due = c.until
	}
	at := len(b.resting)
	for at > 0 && b.resting[at-1].due.After(c.due) {
		at--
	}
	b.resting = append(b.resting, nil)
	copy(b.resting[at+1:], b.resting[at:])
	b.resting[at] = c
}

func pauses() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstPause), backoff.WithMaxInterval(longestPause),
		backoff.WithMultiplier(1.5), backoff.WithRandomizationFactor(0.2), backoff.WithMaxElapsedTime(0))
}

// start starts the calls that may be tried now, and sets the timer for the next ones. The caller holds the mutex.
func (b *Backlog) start(now time.Time) {
	rested := 0
	for rested < len(b.resting) && !b.resting[rested].due.After(now) {
		rested++
	}
	if rested > 0 { // they are older than all that have not been tried
		b.ready = append(append(make([]*Call, 0, rested+len(b.ready)), b.resting[:rested]...), b.ready...)
		b.resting = append([]*Call(nil), b.resting[rested:]...)
	}
	for len(b.ready) > 0 {
		c := b.ready[0]
		if c.until.After(now) && (b.running >= b.atOnce() || b.pauses != nil && b.open.After(now)) {
			break
		}
		b.ready[0] = nil
		b.ready = b.ready[1:]
		if !c.until.After(now) {
			go b.over(c)
			continue
		}
		b.running++
		go b.try(b.ctx, c)
	}
	b.schedule(now)
}

// atOnce returns how many calls may be under way now.
func (b *Backlog) atOnce() int {
	if b.pauses != nil {
		return 1
	}
	return b.opts.AtOnce
}

// schedule sets the timer. The caller holds the mutex.
func (b *Backlog) schedule(now time.Time) {
	var next time.Time
	if len(b.resting) > 0 {
		next = b.resting[0].due
	}
	if len(b.ready) > 0 && b.pauses != nil && b.running == 0 && (next.IsZero() || b.open.Before(next)) {
		next = b.open
	}
	switch {
	case next.IsZero():
		if b.timer != nil {
			b.timer.Stop()
		}
	case b.timer == nil:
		b.timer = time.AfterFunc(next.Sub(now), b.tick)
	default:
		b.timer.Reset(next.Sub(now))
	}
}

func (b *Backlog) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.start(time.Now())
}

// try makes a call once.
func (b *Backlog) try(parent context.Context, c *Call) {
	ctx, cancel := context.WithDeadline(parent, c.until)
	err := c.Try(ctx)
	ended := err != nil && ctx.Err() != nil
	cancel()
	if err == nil || ended {
		c.Over()
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	switch {
	case err == nil:
		b.pauses = nil
		b.done()
	case ended:
		b.done()
	default:
		if b.pauses == nil {
			b.pauses = pauses()
		}
		b.open = now.Add(b.pauses.NextBackOff())
		b.rest(c, now)
	}
	b.start(now)
}

// over ends a call whose time is over before it was tried again.
func (b *Backlog) over(c *Call) {
	c.Over()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done()
}

// done counts one call less. The caller holds the mutex.
func (b *Backlog) done() {
	b.calls--
	if b.calls == 0 && b.none != nil {
		close(b.none)
		b.none = nil
	}
}
