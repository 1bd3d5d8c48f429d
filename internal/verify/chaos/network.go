package chaos

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Link modes.
const (
	whole int32 = iota
	cut         // nothing passes, in either direction, and nothing is lost: it passes later
	deaf        // requests pass, replies are lost
	slow        // replies pass one byte at a time
)

// Link is the network between one client process and one server. Its methods may be called from any goroutine.
type Link struct {
	target   string
	listener net.Listener
	mode     atomic.Int32

	mu    sync.Mutex
	conns map[net.Conn]bool
	done  bool
	all   sync.WaitGroup
}

// NewLink returns a link to a server, which listens at Addr until Close.
func NewLink(ctx context.Context, target string) (*Link, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	link := &Link{target: target, listener: l, conns: map[net.Conn]bool{}}
	link.all.Go(link.accept)
	return link, nil
}

// Addr is where the client connects.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Cut lets nothing pass for a while.
func (l *Link) Cut(d time.Duration) { l.during(cut, d) }

// LoseReplies loses the replies of a while, with their connections.
func (l *Link) LoseReplies(d time.Duration) { l.during(deaf, d) }

// Drip lets replies pass one byte at a time.
func (l *Link) Drip(d time.Duration) { l.during(slow, d) }

func (l *Link) during(mode int32, d time.Duration) {
	l.mode.Store(mode)
	time.Sleep(d)
	l.mode.Store(whole)
}

// Close ends the link and all connections.
func (l *Link) Close() {
	l.mu.Lock()
	l.done = true
	for c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	_ = l.listener.Close()
	l.all.Wait()
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", l.target)
		if err != nil || !l.keep(client, server) {
			_ = client.Close()
			continue
		}
		l.all.Go(func() { l.copy(server, client, false) })
		l.all.Go(func() { l.copy(client, server, true) })
	}
}

// keep has Close end the connections. It returns false if it was called before.
func (l *Link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		if l.done {
			_ = c.Close()
		}
		l.conns[c] = true
	}
	return !l.done
}

// copy passes bytes on until either end is closed.
func (l *Link) copy(to, from net.Conn, replies bool) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
		l.mu.Lock()
		delete(l.conns, to)
		delete(l.conns, from)
		l.mu.Unlock()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if pass := l.pass(to, buffer[:n], replies); pass != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// errLost reports that a connection is closed with what was to pass.
var errLost = errors.New("chaos: lost")

func (l *Link) pass(to io.Writer, piece []byte, replies bool) error {
	for l.mode.Load() == cut {
		time.Sleep(time.Millisecond)
		if l.ended() {
			return errLost
		}
	}
	switch mode := l.mode.Load(); {
	case mode == deaf && replies:
		return errLost
	case mode == slow && replies:
		for i := range piece {
			if _, err := to.Write(piece[i : i+1]); err != nil {
				return err
			}
			if l.mode.Load() == slow {
				time.Sleep(200 * time.Microsecond)
			}
		}
		return nil
	}
	_, err := to.Write(piece)
	return err
}

func (l *Link) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}
