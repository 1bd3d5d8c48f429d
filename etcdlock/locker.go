package etcdlock

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/backend"
)

// DefaultPrefix is the beginning of all etcd keys.
const DefaultPrefix = "railtoken/"

// Options configures a [Locker]. The zero value uses the defaults.
type Options struct {
	// Label names this process to refused callers if an attempt has no label of its own; locking.DefaultLabel when empty.
	Label string
	// Prefix is the beginning of all etcd keys; [DefaultPrefix] when empty. Lockers with the same prefix exclude each
	// other.
	Prefix string
}

// Locker is a [locking.Locker] on etcd. It implements [locking.Watcher] with etcd watches. It is safe for concurrent use.
// Put a locking.Gate in front of it, so that the callers of one process do not compete in etcd.
type Locker struct {
	inner locking.Locker
	store *store
	label string
}

var (
	_ locking.Watcher    = (*Locker)(nil)
	_ backend.Identified = (*Locker)(nil)
)

// New returns a Locker on the etcd of client. The caller still owns the client, and closes it after the Locker. New sends
// nothing. It returns an error if client is nil.
//
// The etcd must compact itself, for example with --auto-compaction-mode=periodic --auto-compaction-retention=5m:
// otherwise its locks fill it up, and it refuses all writes.
func New(client *clientv3.Client, opts Options) (*Locker, error) {
	if client == nil {
		return nil, errors.New("etcdlock: New got a nil client: give it a *clientv3.Client")
	}
	if opts.Prefix == "" {
		opts.Prefix = DefaultPrefix
	}
	s := newStore(client, opts.Prefix)
	return &Locker{inner: locking.New(s), store: s, label: opts.Label}, nil
}

// Acquire makes one attempt: see [locking.Locker]. It takes one write in etcd, and another one if no etcd lease of an
// earlier attempt can be used again. The error does not match locking.ErrUnavailable if etcd's shortest lease is longer
// than TTL allows, or if there are more keys than etcd takes in one transaction.
func (l *Locker) Acquire(ctx context.Context, keys []string, opts locking.Options) (*locking.Lease, error) {
	if opts.Label == "" {
		opts.Label = l.label
	}
	return l.inner.Acquire(ctx, keys, opts)
}

// Watch watches for releases of the keys, and for the ends of leases that were not renewed: see [locking.Watcher].
func (l *Locker) Watch(ctx context.Context, keys []string) (<-chan struct{}, func(), error) {
	return l.store.watch(ctx, keys)
}

// Store identifies the place of the locks by a random value under the prefix, which the first caller writes: it is the same
// for Lockers that exclude each other. See [backend.Identified].
func (l *Locker) Store(ctx context.Context) (string, error) {
	id, err := l.store.identity(ctx)
	if err != nil {
		return "", fmt.Errorf("etcdlock: look where the locks are: %w", l.store.classify(ctx, err))
	}
	return id, nil
}

// Close ends the watches. It waits up to 5 s for unanswered releases, and for attempts that are being undone, and then
// stops repeating them. Keep the client open until Close returns. Leases stay valid and can be released, but new
// attempts fail.
func (l *Locker) Close() error {
	l.store.close()
	return nil
}
