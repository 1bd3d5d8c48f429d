package locking

import (
	"context"
	"errors"
	"time"

	"github.com/railtoken/railtoken/locking/backend"
)

const (
	// releaseTimeout bounds a Release after its caller's context has ended.
	releaseTimeout = 5 * time.Second
	// renewalTimeout bounds how long a Release waits for a renewal that was told to stop: a hanging one must not keep
	// the keys locked.
	renewalTimeout = time.Second
)

// Release gives the keys back. It goes on after ctx has ended, for 5 s at most, and a second call returns what the
// first one returned. The error matches [ErrLost] when the lease was lost before. After any other error the release is
// repeated in the background, and the keys become free when their TTL ends at the latest.
func (l *Lease) Release(ctx context.Context) error {
	l.release.Do(func() { l.releaseErr = l.doRelease(ctx) })
	return l.releaseErr
}

func (l *Lease) doRelease(ctx context.Context) error {
	l.mu.Lock()
	holder := l.holder
	l.mu.Unlock()
	if holder != nil && holder.handOff(l) {
		l.handedOff.Store(true)
		return nil
	}
	l.mu.Lock()
	l.check()
	lost := l.cause
	l.end(ErrReleased)
	renewal := l.renewal
	l.mu.Unlock()

	bounded := &lazyDeadline{Context: context.WithoutCancel(ctx), deadline: time.Now().Add(releaseTimeout)}
	defer bounded.end()
	if renewal != nil {
		select {
		case <-renewal:
		case <-time.After(renewalTimeout):
		}
	}
	notify, err := l.grant.Release(bounded)
	notify = notify || err != nil && !errors.Is(err, ErrLost)
	if holder != nil {
		notify = holder.released(l, notify)
	}
	l.notify.Store(notify)
	if lost != nil {
		return lost
	}
	return err
}

// ShouldNotify reports, after Release, whether another caller asked by [Options.Notify] to be notified of it, or may
// have.
func (l *Lease) ShouldNotify() bool { return l.notify.Load() }

// HandedOff reports, after Release, whether a [Gate] has handed the keys off to the next caller of this process. They
// are still locked, and [Lease.ShouldNotify] says nothing then.
func (l *Lease) HandedOff() bool { return l.handedOff.Load() }

// block returns how many tokens the backend has reserved for each key.
func (l *Lease) block() int {
	if g, ok := l.grant.(backend.BlockGrant); ok {
		return g.Block()
	}
	return 1
}

// setHolder makes the lease one of a gate, and reports whether it is of no other gate.
func (l *Lease) setHolder(h holder) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder != nil {
		return false
	}
	l.holder = h
	if errors.Is(l.cause, ErrLost) {
		go h.lost(l)
	}
	return true
}

// next ends the lease and returns one with the next token for another holder. It returns nil when the lease is over, or
// less than a third of its TTL is left. So also near MaxHold: a renewal for less than the TTL may be on its way, and
// would shorten what the next holder renews.
func (l *Lease) next(h holder, opts Options) *Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.check()
	if l.cause != nil || l.term.ttl != opts.TTL || l.term.until-now < l.term.ttl/3 || l.term.maxHold-now < l.term.ttl {
		return nil
	}
	next := &Lease{
		grant: l.grant, keys: l.keys, offset: l.offset + 1, watch: l.watch, suspension: l.suspension, holder: h,
		term: l.term.handedOff(now, opts.MaxHold),
	}
	next.start(next.term.next(now).sleep)
	l.end(ErrReleased)
	return next
}
