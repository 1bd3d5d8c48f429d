package pglock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/backend"
)

// Bounds of one call to the server.
const (
	acquireTimeout = 5 * time.Second
	startTimeout   = 10 * time.Second
)

// A locker looks at cleanKeys keys after cleanReleases releases, and after cleanPause, and deletes the rows of those
// that are not in use. So there are at most a few times as many rows as keys of the last 10 s.
const (
	cleanReleases = 256
	cleanKeys     = 512
	cleanPause    = time.Minute
)

const cleanSQL = "SELECT railtoken.clean($1::pg_catalog.text::pg_catalog.bytea, $2::int)"

var errClosed = errors.New("pglock: the locker is closed")

// Options configures a Locker. The zero value uses the defaults.
type Options struct {
	// Label names this process to refused callers if an attempt has no label of its own. [locking.DefaultLabel] when
	// empty.
	Label string

	// Listen is the connection string, for example a URL, of a session in which the Locker listens for releases: then
	// waiting callers are notified of a release, and the Locker is a [locking.Watcher]. The session is long-lived, so it
	// must not go through a pooler in transaction mode. When empty, waiting callers poll at least every half second.
	Listen string
}

// Locker is a [locking.Locker] on PostgreSQL: see [New]. It is a [locking.Watcher] if Options.Listen is set.
type Locker interface {
	locking.Locker

	// Close ends the Locker, but not the database handle. It waits up to 5 s for unanswered releases. Leases stay valid
	// and can be released; new attempts fail.
	io.Closer
}

// New returns a Locker that keeps its locks in a database. The caller still owns db, and closes it after the Locker.
// The database must have the schema of this package: see [Create]. Otherwise the error matches [ErrSchema].
//
// Give the locks a db of their own, with SetMaxOpenConns(4) for example. A renewal comes too late if it has to wait for
// a connection that a transaction holds.
func New(ctx context.Context, db *sql.DB, opts Options) (Locker, error) {
	if db == nil {
		return nil, errors.New("pglock: New got a nil database: give it an *sql.DB")
	}
	listener, err := newListener(opts.Listen)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	in, err := check(ctx, db)
	if err != nil {
		return nil, err
	}
	s := &store{db: db, in: in, repeats: newRepeats(db)}
	s.cleaned.Store(time.Now().UnixNano())
	if listener == nil {
		return &locker{Locker: locking.New(s), store: s, label: opts.Label}, nil
	}
	return &listeningLocker{
		locker:  &locker{Locker: locking.New(s), store: s, listener: listener, label: opts.Label},
		Watcher: listener,
	}, nil
}

var _ backend.Identified = (*locker)(nil)

type locker struct {
	locking.Locker

	store    *store
	listener *listener
	label    string
}

type listeningLocker struct {
	*locker
	locking.Watcher
}

// Acquire makes one attempt: see [locking.Locker].
func (l *locker) Acquire(ctx context.Context, keys []string, opts locking.Options) (*locking.Lease, error) {
	opts.Label = cmp.Or(opts.Label, l.label)
	return l.Locker.Acquire(ctx, keys, opts)
}

// Store identifies the database: see [backend.Identified]. Whatever the address and user, it is the same for Lockers whose
// locks exclude each other.
func (l *locker) Store(ctx context.Context) (string, error) {
	in, err := check(ctx, l.store.db)
	return in.id + " " + in.database, err
}

// Close ends the Locker: see [Locker].
func (l *locker) Close() error {
	l.store.closed.Store(true)
	l.store.repeats.close()
	if l.listener != nil {
		l.listener.close()
	}
	return nil
}

// store is the backend of a Locker.
type store struct {
	db      *sql.DB
	in      installation
	repeats *repeats
	closed  atomic.Bool

	releases  atomic.Uint64
	cleaned   atomic.Int64 // when the rows of unused keys were last deleted
	cleaning  sync.Mutex
	cleanedTo []byte // the key that was looked at last
}

// clean deletes the rows of keys that are not in use in the background, if that is due.
func (s *store) clean() {
	last := s.cleaned.Load()
	now := time.Now().UnixNano()
	if s.releases.Add(1)%cleanReleases != 0 && time.Duration(now-last) < cleanPause || !s.cleaned.CompareAndSwap(last, now) {
		return
	}
	s.repeats.run(func(ctx context.Context) {
		s.cleaning.Lock()
		defer s.cleaning.Unlock()
		var next []byte
		if s.db.QueryRowContext(ctx, cleanSQL, text(s.cleanedTo), cleanKeys).Scan(&next) == nil {
			s.cleanedTo = next // otherwise the next one does what this one could not
		}
	})
}
