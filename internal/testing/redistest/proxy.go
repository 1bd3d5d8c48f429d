package redistest

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy is the network between clients and a server. It can hold requests back and cut connections instead of passing replies on.
//
// As on a real network, what a client has sent reaches the server even after the client has closed the connection. Its methods may be
// called from any goroutine.
type Proxy struct {
	target   string
	listener *net.TCPListener
	held     atomic.Pointer[Held]
	cut      atomic.Pointer[func(request, reply []byte) bool]

	done   chan struct{}
	mu     sync.Mutex
	closed bool
	open   map[*net.TCPConn]bool
	wg     sync.WaitGroup
}

// NewProxy starts a proxy in front of the server with that address, which need not listen yet. It is closed at the end of the test.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(loopback)})
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{target: target, listener: l, done: make(chan struct{}), open: map[*net.TCPConn]bool{}}
	p.wg.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Addr is where clients connect instead of to the server.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Held is a piece of a request that is kept back, together with what follows it on the same connection.
type Held struct {
	// Caught is closed once there is such a piece.
	Caught <-chan struct{}

	match    func(request []byte) bool
	caught   chan struct{}
	pass     chan struct{}
	answered chan struct{}
	once     sync.Once
}

// Hold keeps the next piece of a request that matches, until [Held.Deliver] or the end of the test. It replaces an earlier call that has
// caught none.
func (p *Proxy) Hold(match func(request []byte) bool) *Held {
	caught := make(chan struct{})
	h := &Held{Caught: caught, match: match, caught: caught, pass: make(chan struct{}), answered: make(chan struct{})}
	p.held.Store(h)
	return h
}

// Deliver passes the piece on, and returns when the server has answered it. It is called once it is caught.
func (h *Held) Deliver() {
	close(h.pass)
	<-h.answered
}

// Cut makes the proxy ask cut about each piece of a reply, and the last piece of a request before it: when it returns true, the client's
// connection is closed instead. Nil cuts nothing.
func (p *Proxy) Cut(cut func(request, reply []byte) bool) {
	if cut == nil {
		p.cut.Store(nil)
		return
	}
	p.cut.Store(&cut)
}

// IsScript reports whether a piece of a request calls a script.
func IsScript(request []byte) bool {
	return bytes.Contains(request, []byte("evalsha")) || bytes.Contains(request, []byte("eval\r\n"))
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.AcceptTCP()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// serve passes one connection on until both of its ways have ended.
func (p *Proxy) serve(client *net.TCPConn) {
	if !p.keep(client) {
		return
	}
	defer p.drop(client)
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		return
	}
	server, ok := conn.(*net.TCPConn)
	if !ok || !p.keep(server) {
		return
	}
	defer p.drop(server)
	c := &proxied{client: client, server: server}
	var ways sync.WaitGroup
	ways.Go(func() { p.requests(c) })
	ways.Go(func() { p.replies(c) })
	ways.Wait()
}

// proxied is one connection.
type proxied struct {
	client, server *net.TCPConn
	last           atomic.Pointer[[]byte] // piece of a request
	held           atomic.Pointer[Held]   // that was delivered and has no answer yet
}

// requests passes on what the client sends, also after it has gone.
func (p *Proxy) requests(c *proxied) {
	defer func() { _ = c.server.CloseWrite() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.client.Read(buf)
		if n > 0 {
			request := bytes.Clone(buf[:n])
			if h := p.held.Load(); h != nil && h.match(request) && p.held.CompareAndSwap(h, nil) {
				close(h.caught)
				select {
				case <-h.pass:
				case <-p.done:
					return
				}
				c.held.Store(h)
			}
			c.last.Store(&request)
			if _, err := c.server.Write(request); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// replies passes on what the server answers, until it closes the connection.
func (p *Proxy) replies(c *proxied) {
	defer c.client.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.server.Read(buf)
		if h := c.held.Load(); h != nil {
			h.once.Do(func() { close(h.answered) })
		}
		if n > 0 {
			var request []byte
			if r := c.last.Load(); r != nil {
				request = *r
			}
			if cut := p.cut.Load(); cut != nil && (*cut)(request, buf[:n]) {
				_ = c.client.Close() // what follows is read and goes nowhere
			}
			_, _ = c.client.Write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

func (p *Proxy) keep(conn *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = conn.Close()
		return false
	}
	p.open[conn] = true
	return true
}

func (p *Proxy) drop(conn *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
	_ = conn.Close()
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	close(p.done)
	_ = p.listener.Close()
	for conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}
