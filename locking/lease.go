package locking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// releaseTimeout bounds a Release, whatever became of the caller's context.
	releaseTimeout = 5 * time.Second
	// renewalTimeout bounds how long a Release waits for a renewal under way that was told to stop: one that hangs must
	// not keep the keys locked.
	renewalTimeout = time.Second
)

// Grant is what a backend holds for one lease: the part of a [Lease] that talks to servers. All of its methods may be
// called at the same time.
//
// A grant whose tokens are the first ones of blocks that it has reserved (see [Options].Block) has a method Block() int besides,
// which returns their size.
type Grant interface {
	// Fence returns the fencing token of the i-th key, waiting until it is certain. When it is certain already, it returns it also
	// if ctx has ended.
	Fence(ctx context.Context, i int) (int64, error)
	// Renew makes the locks last for ttl from now. An error that matches ErrLost is final; after any other the
	// lease tries again.
	Renew(ctx context.Context, ttl time.Duration) error
	// Release deletes the locks that are still this holder's. It reports whether somebody showed interest in one of the
	// keys, and true when it cannot know. An error that matches ErrLost says that a lock had gone before.
	Release(ctx context.Context) (contended bool, err error)
}

// Lease is the right to work on some keys, until it is released or lost. It renews itself in the background.
//
// A Lease must be released, also after it is lost. It is safe for use by many goroutines at the same time.
type Lease struct {
	grant     Grant
	keys      []string
	committed atomic.Bool
	contended atomic.Bool
	handedOff atomic.Bool

	mu       sync.Mutex
	watch    stopwatch
	pulse    *pulse
	term     term
	timer    *time.Timer
	cause    error                                       // nil while the lease is trusted
	done     chan struct{}                               // closed with the cause; made when somebody asks for it
	contexts map[context.Context]context.CancelCauseFunc // that end with the lease, and some that have ended before
	room     int                                         // for so many of them
	lastErr  error                                       // of the last renewal, when it failed
	renewal  chan struct{}                               // not nil while a background renewal is under way; closed after it
	stop     context.CancelFunc                          // of the renewal
	giveUp   time.Duration                               // when it is stopped

	offset int64  // of its tokens from the first of the block
	gate   *Gate  // it belongs to, or nil
	shared bool   // the rest of the block is for those that the gate hands the lease off to
	hold   *hold  // there
	onLoss func() // not nil: called on a goroutine of its own when the lease is lost

	release    sync.Once
	releaseErr error
}

// NewLease returns the lease for a grant: what an implementation of [Locker] calls last. The keys and options are those that
// [Prepare] returned; began is when the implementation's first request was about to be sent. It returns an error that
// matches [ErrLost], and a nil lease, when so much time has passed since then that the grant cannot be trusted; the
// implementation then releases it.
func NewLease(grant Grant, keys []string, opts Options, began Instant) (*Lease, error) {
	l := &Lease{
		grant: grant, keys: keys, watch: began.watch, pulse: began.pulse, term: newTerm(opts.TTL, opts.MaxHold, anyHaste()),
	}
	if l.pulse == nil {
		l.pulse = &pulse{read: began.watch.read}
	}
	next := l.term.next(l.watch.elapsed())
	if next.lost != "" {
		return nil, &LostError{Keys: keys, Reason: next.lost}
	}
	l.start(next.sleep)
	return l, nil
}

// start has the lease look after itself from then on.
func (l *Lease) start(after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(after, l.tick)
	l.pulse.add(l)
}

// Instant is a moment that later time is measured from, by the monotonic and the wall clock.
type Instant struct {
	watch stopwatch
	pulse *pulse // of the Locker, or nil
}

// Now returns the present moment.
func Now() Instant { return Instant{watch: newStopwatch()} }

// Keys returns the keys that the lease is for, sorted, each once.
func (l *Lease) Keys() []string { return slices.Clone(l.keys) }

// Fence returns the fencing token of the lease's first key, in the order of [Lease.Keys]: a positive number that is
// larger than that of every earlier lease of the key, and below 2^53. It waits until the token is certain; on a single node it is at
// once. The error matches [ErrLost] when the lease has been lost.
func (l *Lease) Fence(ctx context.Context) (int64, error) { return l.fence(ctx, 0) }

// FenceOf returns the fencing token of one of the lease's keys.
func (l *Lease) FenceOf(ctx context.Context, key string) (int64, error) {
	i, ok := slices.BinarySearch(l.keys, key)
	if !ok {
		return 0, fmt.Errorf("locking: no token for key %q: this lease is for %q", key, l.keys)
	}
	return l.fence(ctx, i)
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// fence returns the token of the i-th key. It waits no longer than the lease lasts.
func (l *Lease) fence(ctx context.Context, i int) (int64, error) {
	token, err := l.grant.Fence(ended, i) // nearly always it is there
	if err != nil {
		during, drop := l.during(ctx)
		defer drop()
		if token, err = l.grant.Fence(during, i); err != nil {
			return 0, cmp.Or(l.Err(), err)
		}
	}
	// A token that was committed after the end of the lease need not be above those that others have got meanwhile.
	if err := l.Err(); errors.Is(err, ErrLost) {
		return 0, err
	}
	return token + l.offset, nil
}

// ValidUntil returns when the lease ends unless it is renewed before.
func (l *Lease) ValidUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Add(l.term.until - l.watch.elapsed())
}

// Err returns nil while the lease can be trusted, and afterwards why it cannot: an error that matches [ErrLost], or
// [ErrReleased].
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check()
	return l.cause
}

// Release gives the keys back. It goes on when ctx has ended, for 5 s at most, and a second call returns what the first
// returned. The error matches [ErrLost] when the lease had been lost before; after any other error the
// backend goes on in the background, and the keys become free when their TTL ends at the latest.
func (l *Lease) Release(ctx context.Context) error {
	l.release.Do(func() { l.releaseErr = l.doRelease(ctx) })
	return l.releaseErr
}

func (l *Lease) doRelease(ctx context.Context) error {
	l.mu.Lock()
	gate, hold := l.gate, l.hold
	l.mu.Unlock()
	if gate != nil && gate.handOff(hold, l) {
		l.handedOff.Store(true)
		return nil
	}
	l.mu.Lock()
	l.check()
	lost := l.cause
	l.end(ErrReleased)
	renewal := l.renewal
	l.mu.Unlock()

	bounded := &patience{Context: context.WithoutCancel(ctx), deadline: time.Now().Add(releaseTimeout)}
	defer bounded.end()
	if renewal != nil {
		select {
		case <-renewal:
		case <-time.After(renewalTimeout):
		}
	}
	contended, err := l.grant.Release(bounded)
	contended = contended || err != nil && !errors.Is(err, ErrLost)
	if gate != nil {
		contended = gate.released(hold, l, contended)
	}
	l.contended.Store(contended)
	if lost != nil {
		return lost
	}
	return err
}

// ShouldNotify reports, after Release, whether somebody has asked by [Options.Notify] to be told of it, or may have.
func (l *Lease) ShouldNotify() bool { return l.contended.Load() }

// MarkCommitted records that the holder's effect is committed under its fencing token, so that a later loss of the lease
// does not undo it: a middleware then counts the work as done.
func (l *Lease) MarkCommitted() { l.committed.Store(true) }

// Committed reports whether MarkCommitted was called.
func (l *Lease) Committed() bool { return l.committed.Load() }

// check ends the lease when its time is over, and returns that time. The caller holds the mutex.
func (l *Lease) check() (now time.Duration) {
	now = l.watch.elapsed()
	if l.cause != nil {
		return now
	}
	if joined, ok := l.grant.(*joinedGrant); ok {
		if err := joined.lost(); err != nil {
			l.end(err)
			return now
		}
	}
	if next := l.term.next(now); next.lost != "" {
		l.end(&LostError{Keys: l.keys, Reason: next.lost, Err: l.lastErr})
	}
	return now
}

// end closes the lease with a cause, once. The caller holds the mutex.
func (l *Lease) end(cause error) {
	if l.cause != nil {
		return
	}
	l.cause = cause
	if l.stop != nil {
		l.stop()
	}
	l.timer.Stop()
	l.pulse.drop(l)
	if l.done != nil {
		close(l.done)
	}
	for _, cancel := range l.contexts {
		cancel(cause)
	}
	if l.onLoss != nil && errors.Is(cause, ErrLost) {
		go l.onLoss()
	}
	l.contexts = nil
}
