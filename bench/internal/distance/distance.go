// Package distance simulates a network between a client and a server on the same machine: a proxy that delays every
// byte.
//
// It delays but does not throttle: bytes leave in the order in which they arrived, each a fixed time after its
// arrival, however many are in flight. The TCP handshake is not delayed, so only a connection's first bytes are a
// round trip too early.
package distance

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	chunk    = 64 << 10
	underWay = 4096 // chunks; with more than that on one way of a connection, the sender has to wait
)

// Proxy passes connections on to a server.
type Proxy struct {
	target   string
	oneWay   time.Duration
	listener net.Listener

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]bool
	wg     sync.WaitGroup
}

// Listen starts a proxy on a free port of the loopback device. What it gets from a client is given to target after
// oneWay, and what it gets from there is given to the client after oneWay. The target need not listen yet.
func Listen(ctx context.Context, target string, oneWay time.Duration) (*Proxy, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, oneWay: oneWay, listener: listener, open: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends all connections at once and returns when nothing of the proxy is left.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	err := p.listener.Close()
	for conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // too many open files, say
			continue
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// serve passes one connection on until both sides have ended it.
func (p *Proxy) serve(client net.Conn) {
	if !p.keep(client) {
		return
	}
	defer p.drop(client)
	server, err := net.Dial("tcp", p.target) //nolint:noctx // Close ends it
	if err != nil || !p.keep(server) {
		return
	}
	defer p.drop(server)
	from, isTCP := client.(end)
	to, areTCP := server.(end)
	if isTCP && areTCP {
		var ways sync.WaitGroup
		for _, way := range [][2]end{{from, to}, {to, from}} {
			ways.Go(func() {
				until, stop := newAlarm()
				defer stop()
				carry(way[0], way[1], p.oneWay, until)
			})
		}
		ways.Wait()
	}
}

func (p *Proxy) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[conn] = true
	if p.closed {
		_ = conn.Close()
	}
	return !p.closed
}

func (p *Proxy) drop(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
	_ = conn.Close()
}

// parcel is some bytes that are due at a time; none stand for the end.
type parcel struct {
	due   time.Time
	bytes []byte
}

// end is one end of a connection, of which one way can be closed.
type end interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// carry is one way of a connection, until its sender has no more to say, or one of the two is gone. until returns at a
// time.
func carry(from, to end, oneWay time.Duration, until func(time.Time)) {
	queue := make(chan parcel, underWay)
	var delivery sync.WaitGroup
	delivery.Go(func() { deliver(queue, from, to, until) })
	buf := make([]byte, chunk)
	for {
		n, err := from.Read(buf)
		due := time.Now().Add(oneWay)
		if n > 0 {
			queue <- parcel{due, append([]byte(nil), buf[:n]...)}
		}
		if err != nil {
			queue <- parcel{due: due}
			break
		}
	}
	close(queue)
	delivery.Wait()
}

func deliver(queue <-chan parcel, from, to end, until func(time.Time)) {
	gone := false
	for next := range queue {
		if gone {
			continue // until the reader has noticed too
		}
		until(next.due)
		if next.bytes == nil {
			_ = to.CloseWrite()
		} else if _, err := to.Write(next.bytes); err != nil {
			gone = true
			_ = from.Close()
		}
	}
}
