package restartguard

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"syscall"
	"time"
)

const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second

	// probeTime is how long a probe may take before another dial is allowed.
	probeTime = time.Second
)

// breaker refuses dials until a given time. Then it allows one dial, the probe, and refuses others until the probe is
// vetted, or for probeTime.
type breaker struct {
	refusal *RefusedError
	until   time.Time
	probing bool
}

// Blocked returns the current refusal while a dial would be refused, and nil otherwise, so that a caller need not ask
// its pool for a connection. It ignores connections in the pool. Without a refusal it costs one atomic load.
func (n *Node) Blocked() error {
	if b := n.breaker.Load(); b != nil && time.Now().Before(b.until) {
		return b.refusal
	}
	return nil
}

// dial connects to the server, or refuses. A refusal is not an error but a connection that fails at its first use:
// go-redis v9.23 repeats a failed dial four times, 100 ms apart, logs it, and after PoolSize failures does not dial for
// a second at a time. A connection whose handshake fails costs nothing but the error. TestRefusalCostsNothing will show
// when that changes.
func (n *Node) dial(ctx context.Context, addr string, dial func() (net.Conn, error)) (net.Conn, error) {
	if b := n.tryDial(); b != nil {
		return &refusedConn{b.refusal}, nil
	}
	conn, err := dial()
	switch {
	case err == nil:
		return conn, nil
	case n.guard.mode == Off || errors.Is(ctx.Err(), context.Canceled):
		return nil, err
	}
	return &refusedConn{n.failed(addr, err, false)}, nil
}

// tryDial returns the breaker that refuses a dial, or nil if the dial may be made.
func (n *Node) tryDial() *breaker {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.breaker.Load()
	if b == nil {
		return nil
	}
	now := time.Now()
	if now.Before(b.until) {
		return b
	}
	n.breaker.Store(&breaker{refusal: b.refusal, until: now.Add(probeTime), probing: true})
	return nil
}

// accept allows all dials.
func (n *Node) accept() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fails = 0
	n.breaker.Store(nil)
}

// refuse refuses dials until the refusal ends.
func (n *Node) refuse(refusal *RefusedError) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fails = 0
	n.breaker.Store(&breaker{refusal: refusal, until: refusal.Until})
}

// failed refuses dials for a while after a server could not be asked. This pause grows with each failure; dials that
// fail at the same time count as one failure.
func (n *Node) failed(addr string, err error, answered bool) *RefusedError {
	n.mu.Lock()
	defer n.mu.Unlock()
	if b := n.breaker.Load(); b != nil && !b.probing {
		return b.refusal
	}
	pause := min(firstPause<<min(n.fails, 10), maxPause)
	n.fails++
	pause = pause/2 + rand.N(pause/2+1)
	reason := Unreachable
	if answered {
		reason = Unreadable
		n.identity.Store(nil)
	}
	refusal := refuse(reason, time.Now().Add(pause), "%v", err)
	refusal.Node, refusal.Addr, refusal.Err = n.index, addr, err
	n.breaker.Store(&breaker{refusal: refusal, until: refusal.Until})
	return refusal
}

// refusedConn is a connection to nowhere whose every use fails with the refusal.
type refusedConn struct{ refusal *RefusedError }

// Read fails with the refusal.
func (c *refusedConn) Read([]byte) (int, error) { return 0, c.refusal }

// Write fails with the refusal.
func (c *refusedConn) Write([]byte) (int, error) { return 0, c.refusal }

// SyscallConn fails with the refusal, so a pool that kept the connection finds it dead.
func (c *refusedConn) SyscallConn() (syscall.RawConn, error) { return nil, c.refusal }

// Close does nothing.
func (c *refusedConn) Close() error { return nil }

// LocalAddr and RemoteAddr return an empty address.
func (c *refusedConn) LocalAddr() net.Addr  { return &net.TCPAddr{} }
func (c *refusedConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// SetDeadline and the like do nothing, because no use of the connection takes time.
func (c *refusedConn) SetDeadline(time.Time) error      { return nil }
func (c *refusedConn) SetReadDeadline(time.Time) error  { return nil }
func (c *refusedConn) SetWriteDeadline(time.Time) error { return nil }
