package locking_test

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"sync"
	"testing"
	"time"
)

// proxy hands connections on to a server, and keeps those of its clients when it changes the server.
type proxy struct {
	listener net.Listener
	done     sync.WaitGroup

	mu     sync.Mutex
	target string
	turn   int // counts the changes
	ahead  time.Duration
	conns  map[net.Conn]bool
}

func startProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: target, conns: map[net.Conn]bool{}}
	p.done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.keep(conn)
			p.done.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.mu.Lock()
		for conn := range p.conns {
			_ = conn.Close()
		}
		p.mu.Unlock()
		p.done.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) keep(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = true
}

// switchTo makes every connection lead to another server from its next request on.
func (p *proxy) switchTo(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target, p.turn = target, p.turn+1
}

func (p *proxy) now() (target string, turn int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target, p.turn
}

// step makes the server look as if its clock had been set forward after it was started, so that it runs for ahead
// already, below 10 s.
func (p *proxy) step(ahead time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead = ahead
}

// uptime is the age of a process that is younger than 10 s.
var uptime = regexp.MustCompile(`uptime_in_seconds:\d\r`)

// answer hands the answers of a server on.
func (p *proxy) answer(client io.Writer, server io.Reader) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		ahead := p.ahead
		p.mu.Unlock()
		reply := buffer[:n]
		if ahead > 0 {
			reply = uptime.ReplaceAll(reply, fmt.Appendf(nil, "uptime_in_seconds:%d\r", ahead/time.Second))
		}
		if _, err := client.Write(reply); err != nil {
			return
		}
	}
}

// serve hands the requests of one client on.
func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	var server net.Conn
	served := -1
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			break
		}
		if target, turn := p.now(); turn != served {
			if server != nil {
				_ = server.Close()
			}
			if server, err = net.Dial("tcp", target); err != nil {
				return
			}
			served = turn
			p.keep(server)
			from := server
			p.done.Go(func() { p.answer(client, from) })
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			break
		}
	}
	if server != nil {
		_ = server.Close()
	}
}
