package locking

import (
	"context"
	"errors"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/locking/backend"
)

// New returns a Locker on a backend. The Locker implements [Watcher] if the backend does. New panics if b is nil. A
// holder without a label gets [DefaultLabel].
func New(b backend.Backend) Locker {
	if b == nil {
		panic("locking: New needs a Backend")
	}
	l := &backendLocker{backend: b}
	if w, ok := b.(Watcher); ok {
		return &watchedLocker{l, w}
	}
	return l
}

// backendLocker is a Locker on a backend.
type backendLocker struct {
	backend    backend.Backend
	suspension suspensionDetector
}

// watchedLocker is a backendLocker whose backend implements [Watcher].
type watchedLocker struct {
	*backendLocker
	Watcher
}

// Acquire makes one attempt: see [Locker].
func (l *backendLocker) Acquire(ctx context.Context, keys []string, opts Options) (*Lease, error) {
	keys, opts, err := prepareFor(ctx, l, keys, opts)
	if err != nil {
		return nil, err
	}
	label := lockwire.CleanLabel(opts.Label)
	if label == "" {
		label = lockwire.CleanLabel(DefaultLabel())
	}
	began := l.suspension.now()
	grant, err := l.backend.Acquire(ctx, backend.Request{
		Keys: keys, TTL: opts.TTL, MaxHold: opts.MaxHold, Label: label,
		Notify: opts.Notify, Block: opts.block,
	})
	if held, ok := errors.AsType[*HeldError](err); ok {
		if err := reentry(ctx, held, ""); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	lease, err := newLease(ctx, grant, keys, opts, began)
	if err != nil {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		_, _ = grant.Release(bounded)
		return nil, err
	}
	lease.from = l
	return lease, nil
}
