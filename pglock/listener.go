package pglock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	listenTimeout    = 10 * time.Second
	longestReconnect = 5 * time.Second
)

// listener notifies watches of the releases that the server announces. Its session is opened with the first watch and
// kept until close. What is announced while there is no session is lost, so after each reconnect all watches are
// notified.
type listener struct {
	config *pgx.ConnConfig
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu      sync.Mutex
	started bool
	closed  bool
	watches map[string]map[*watch]bool // by the payload of a notification
}

// watch is a caller that waits.
type watch struct{ released chan struct{} }

func (w *watch) notify() {
	select {
	case w.released <- struct{}{}:
	default: // it is notified already
	}
}

// newListener returns nil without a connection string.
func newListener(url string) (*listener, error) {
	if url == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("pglock: Options.Listen: %w", err) // pgx leaves the password out
	}
	l := &listener{config: config, watches: map[string]map[*watch]bool{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l, nil
}

// payload returns the notification of the release of a key.
func payload(key string) string {
	sum := sha256.Sum256(stored(key))
	return hex.EncodeToString(sum[:])
}

// Watch implements [locking.Watcher].
func (l *listener) Watch(_ context.Context, keys []string) (released <-chan struct{}, stop func(), err error) {
	w := &watch{make(chan struct{}, 1)}
	payloads := make([]string, len(keys))
	for i, key := range keys {
		payloads[i] = payload(key)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, errClosed
	}
	for _, p := range payloads {
		if l.watches[p] == nil {
			l.watches[p] = map[*watch]bool{}
		}
		l.watches[p][w] = true
	}
	if !l.started {
		l.started = true
		l.all.Go(l.listen)
	}
	return w.released, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, p := range payloads {
			delete(l.watches[p], w)
			if len(l.watches[p]) == 0 {
				delete(l.watches, p)
			}
		}
	}, nil
}

// listen keeps a session, until close.
func (l *listener) listen() {
	pause := firstPause
	for l.ctx.Err() == nil {
		if l.session() {
			pause = firstPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, longestReconnect)
	}
}

// session listens until the session ends, and reports whether there was one.
func (l *listener) session() bool {
	ctx, cancel := context.WithTimeout(l.ctx, listenTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, l.config.Copy())
	if err != nil {
		return false
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), time.Second)
		defer cancel()
		_ = conn.Close(bounded)
	}()
	if _, err := conn.Exec(ctx, "LISTEN railtoken"); err != nil {
		return false
	}
	l.notifyAll()
	for {
		n, err := conn.WaitForNotification(l.ctx)
		if err != nil {
			return true
		}
		l.mu.Lock()
		for w := range l.watches[n.Payload] {
			w.notify()
		}
		l.mu.Unlock()
	}
}

func (l *listener) notifyAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, watches := range l.watches {
		for w := range watches {
			w.notify()
		}
	}
}

func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.all.Wait()
}
