package redistest

import (
	"net"
	"sync"
)

// socketBuffer is how many writes a connection in memory takes before it waits for the other side.
const socketBuffer = 256

// buffered is a connection in memory that has a buffer to write to, as a socket has: without one, a client that sends a
// long pipeline and a server that answers its beginning would wait for each other.
type buffered struct {
	net.Conn

	writes chan []byte
	done   chan struct{} // closed by Close
	failed chan struct{} // closed when the other side is gone
	once   sync.Once
}

func newBuffered(conn net.Conn) net.Conn {
	b := &buffered{Conn: conn, writes: make(chan []byte, socketBuffer), done: make(chan struct{}), failed: make(chan struct{})}
	go b.drain()
	return b
}

// drain passes on what was written.
func (b *buffered) drain() {
	for {
		select {
		case p := <-b.writes:
			if _, err := b.Conn.Write(p); err != nil {
				close(b.failed)
				return
			}
		case <-b.done:
			return
		}
	}
}

func (b *buffered) Write(p []byte) (int, error) {
	select {
	case <-b.failed:
		return 0, net.ErrClosed
	case <-b.done:
		return 0, net.ErrClosed
	default:
	}
	select {
	case b.writes <- append([]byte(nil), p...):
		return len(p), nil
	case <-b.failed:
		return 0, net.ErrClosed
	case <-b.done:
		return 0, net.ErrClosed
	}
}

func (b *buffered) Close() error {
	b.once.Do(func() { close(b.done) })
	return b.Conn.Close()
}
