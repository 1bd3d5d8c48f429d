package server

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

const (
	chunk    = 64 << 10
	underWay = 4096 // chunks; with more than that on one way of a connection, the sender has to wait
)

// Proxy passes connections on to a server and delays every byte: a network between two processes of one machine.
//
// It delays but does not throttle: bytes leave in the order in which they arrived, each a fixed time after its
// arrival, however many are in flight. The TCP handshake is not delayed, so only a connection's first bytes are a
// round trip too early.
type Proxy struct {
	target   string
	oneWay   time.Duration
	listener net.Listener
	running  context.Context // ends the connections
	end      func()
	wg       sync.WaitGroup

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]bool // of clients
}

// StartProxy starts a proxy on a free port of the loopback device. What it gets from a client is given to target after
// oneWay, and what it gets from there is given to the client after oneWay. The target need not listen yet.
func StartProxy(ctx context.Context, target string, oneWay time.Duration) (*Proxy, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, oneWay: oneWay, listener: listener, open: map[net.Conn]bool{}}
	p.running, p.end = context.WithCancel(context.Background())
	p.wg.Go(func() {
		for client, err := listener.Accept(); err == nil; client, err = listener.Accept() {
			p.wg.Go(func() { p.serve(client) })
		}
	})
	return p, nil
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends all connections at once and returns when nothing of the proxy is left.
func (p *Proxy) Close() error {
	p.end()
	err := p.listener.Close()
	p.wg.Wait()
	return err
}

// Cut ends all connections, and those that clients open until [Proxy.Mend].
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for client := range p.open {
		_ = client.Close()
	}
}

// Mend lets clients connect again after a cut.
func (p *Proxy) Mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// enter notes a client's connection, unless the network is cut.
func (p *Proxy) enter(client net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.cut {
		p.open[client] = true
	}
	return !p.cut
}

func (p *Proxy) leave(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, client)
}

// serve passes one connection on until both sides have ended it, or one is cut off.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	if !p.enter(client) {
		return
	}
	defer p.leave(client)
	server, err := new(net.Dialer).DialContext(p.running, "tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(p.running, func() { _, _ = client.Close(), server.Close() })()
	from, isTCP := client.(end)
	to, areTCP := server.(end)
	if !isTCP || !areTCP {
		return
	}
	var ways sync.WaitGroup
	for _, way := range [][2]end{{from, to}, {to, from}} {
		ways.Go(func() {
			until, stop := NewAlarm()
			defer stop()
			carry(way[0], way[1], p.oneWay, func(due time.Time) { _ = until(context.Background(), due) })
		})
	}
	ways.Wait()
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
	delivery.Go(func() {
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
	})
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
