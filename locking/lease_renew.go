package locking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
)

// Renew extends the lease to its TTL from now, or to MaxHold if that is earlier. It is seldom needed, because a lease
// renews itself. Once the lease is over, Renew returns the error of [Lease.Err]. After any other error the lease keeps
// its previous end.
func (l *Lease) Renew(ctx context.Context) error {
	if l == nil {
		return ErrReleased
	}
	return l.renewNow(ctx, false)
}

// renewNow does what Renew does. always has the servers asked even if the lease lasts until MaxHold already.
func (l *Lease) renewNow(ctx context.Context, always bool) error {
	l.mu.Lock()
	sent := l.check()
	if l.cause != nil {
		defer l.mu.Unlock()
		return l.cause
	}
	if l.term.Capped && !always {
		defer l.mu.Unlock()
		return nil
	}
	ttl := min(l.term.TTL, l.term.MaxHold-sent)
	l.mu.Unlock()

	err := l.renewGrant(ctx, ttl)

	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && !errors.Is(err, ErrLost) {
		l.lastErr = err // the background renews when it would have
		l.check()
	} else {
		l.renewed(sent, ttl, err)
	}
	if l.cause != nil {
		return l.cause
	}
	return err
}

// renewGrant has the backend renew the lease once.
func (l *Lease) renewGrant(ctx context.Context, ttl time.Duration) error {
	return lossOf(l.keys, l.grant.Renew(ctx, ttl))
}

// tick renews the lease when a renewal is due, and ends it when its time is over. It is called by the timer, and when
// the wall clock got ahead.
func (l *Lease) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return
	}
	now := l.check()
	next := l.term.Next(now)
	switch {
	case l.cause != nil:
	case !next.Renew:
		l.timer.Reset(next.Sleep)
	case l.renewal == nil:
		l.renewInBackground(now, next.TTL)
	case now < l.giveUp: // a renewal is under way, whose answer sets the timer
		l.timer.Reset(l.giveUp - now)
	default:
		l.stop()
		l.timer.Reset(l.term.Until - now)
	}
}

// renewInBackground starts one renewal. The timer continues to run, so that a hanging renewal cannot hide the end of
// the lease, and is given up early enough for another one. The caller holds the mutex.
func (l *Lease) renewInBackground(sent, ttl time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	l.renewal, l.stop, l.giveUp = done, cancel, min(sent+l.term.TTL/leasing.RenewFraction, l.term.Until)
	l.timer.Reset(l.giveUp - sent)
	go func() {
		defer close(done)
		defer cancel()
		err := l.renewGrant(ctx, ttl)
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.renewal, l.stop = nil, nil
		l.renewed(sent, ttl, err)
		if l.cause == nil {
			l.timer.Reset(max(l.term.Next(l.watch.Elapsed()).Sleep, 0))
		}
	}()
}

// renewed records the outcome of a renewal. After the end of the lease a renewal extends nothing, because another
// holder may have had the keys in the meantime. The caller holds the mutex.
func (l *Lease) renewed(sent, ttl time.Duration, err error) {
	if err != nil && !errors.Is(err, ErrLost) {
		l.lastErr = err
	}
	now := l.check()
	switch {
	case l.cause != nil:
	case err == nil:
		l.term, l.lastErr = l.term.Renewed(sent, ttl), nil
		l.check()
	case errors.Is(err, ErrLost):
		l.end(err)
	default:
		l.term = l.term.Failed(now)
	}
}
