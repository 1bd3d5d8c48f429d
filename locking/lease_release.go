package locking

import (
	"context"
	"errors"
	"time"
)

const (
	// releaseTimeout bounds a Release after its caller's context has ended.
	releaseTimeout = 5 * time.Second
	// renewalTimeout bounds how long Release waits for a renewal to stop: a hanging one must not keep the keys locked.
	renewalTimeout = time.Second
)

// Release gives the keys back. It takes 5 s at most, and does not stop when ctx ends. A second call returns what the
// first one returned. The error matches [ErrLost] if the lease was lost before. After any other error, railtoken's own
// lockers repeat the release in the background, and the keys become free when their TTL ends at the latest.
func (l *Lease) Release(ctx context.Context) error {
	if l == nil {
		return nil
	}
	l.release.Do(func() { l.releaseErr = l.doRelease(ctx) })
	return l.releaseErr
}

func (l *Lease) doRelease(ctx context.Context) error {
	holder := l.heldBy()
	ended, lost := l.beginRelease(holder)
	if !ended {
		return nil
	}
	bounded := &lazyDeadline{Context: ctx, deadline: time.Now().Add(releaseTimeout)}
	defer bounded.end()
	notify, err := l.grant.Release(bounded)
	notify = notify || err != nil && !errors.Is(err, ErrLost)
	if holder != nil && holder.released(l, notify) {
		notify = true
	}
	l.notify.Store(notify)
	if lost != nil {
		return lost
	}
	return lossOf(l.keys, err)
}

// heldBy returns the Gate's part of the lease, or nil.
func (l *Lease) heldBy() holder {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}

// beginRelease hands the lease off, or ends it: then ended is true, and the keys are to be released. lost says why the
// lease was over before, if it was.
func (l *Lease) beginRelease(holder holder) (ended bool, lost error) {
	if holder != nil && holder.handOff(l) {
		l.handedOff.Store(true)
		return false, nil
	}
	l.mu.Lock()
	l.check()
	lost = l.cause
	l.end(ErrReleased)
	renewal := l.renewal
	l.mu.Unlock()
	if renewal != nil {
		select {
		case <-renewal:
		case <-time.After(renewalTimeout):
		}
	}
	return true, lost
}

// ShouldNotify reports, after Release, whether another caller has, or may have, subscribed to it with [Options.Notify].
func (l *Lease) ShouldNotify() bool { return l != nil && l.notify.Load() }

// HandedOff reports, after Release, whether a [Gate] has handed the keys off to the next caller of this process. Then
// they are still locked, and [Lease.ShouldNotify] is meaningless.
func (l *Lease) HandedOff() bool { return l != nil && l.handedOff.Load() }
