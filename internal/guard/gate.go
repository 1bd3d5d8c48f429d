package guard

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

	// probeTime is how long one dial is waited for before another is allowed.
	probeTime = time.Second
)

// gate keeps everybody from dialling until a time. Then it lets one through, the probe, and is shut again until the probe is
// judged, or for probeTime.
type gate struct {
	refusal *RefusedError
	until   time.Time
	probing bool
}

// Blocked returns the current refusal when dialling now would be refused, so that a caller need not ask its pool for a connection;
// nil when it would be tried. The good case is one atomic load. Connections that the pool still has are not looked at.
func (n *Node) Blocked() error {
	if g := n.gate.Load(); g != nil && time.Now().Before(g.until) {
		return g.refusal
	}
	return nil
}

// dial connects to the server, or refuses. It gives a refusal as a connection that fails at its first use, not as an error: go-redis
// v9.23 tries a dial that failed four times again, 100 ms apart, logs it, and after PoolSize failures in all does not dial for a second at
// a time, while a connection whose handshake fails costs nothing but the error. TestRefusalCostsNothing tells when that changes.
func (n *Node) dial(ctx context.Context, addr string, dial func() (net.Conn, error)) (net.Conn, error) {
	if shut := n.enter(); shut != nil {
		return &refusedConn{shut.refusal}, nil
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

// enter returns the gate when it is shut for a dial, or nil when the dial may be made.
func (n *Node) enter() *gate {
	if n.gate.Load() == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.gate.Load()
	if g == nil {
		return nil
	}
	now := time.Now()
	if now.Before(g.until) {
		return g
	}
	n.gate.Store(&gate{refusal: g.refusal, until: now.Add(probeTime), probing: true})
	return nil
}

// open lets everybody dial.
func (n *Node) open() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fails = 0
	n.gate.Store(nil)
}

// shut keeps everybody from dialling until the refusal is over.
func (n *Node) shut(refusal *RefusedError) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fails = 0
	n.gate.Store(&gate{refusal: refusal, until: refusal.Until})
}

// failed shuts the gate after a server could not be asked. The pause grows from one failure to the next; of many dials that fail
// together the first counts.
func (n *Node) failed(addr string, err error, answered bool) *RefusedError {
	n.mu.Lock()
	defer n.mu.Unlock()
	if g := n.gate.Load(); g != nil && !g.probing {
		return g.refusal
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
	n.gate.Store(&gate{refusal: refusal, until: refusal.Until})
	return refusal
}

// refusedConn is a connection to nowhere whose every use fails with the refusal.
type refusedConn struct{ refusal *RefusedError }

// Read fails with the refusal.
func (c *refusedConn) Read([]byte) (int, error) { return 0, c.refusal }

// Write fails with the refusal.
func (c *refusedConn) Write([]byte) (int, error) { return 0, c.refusal }

// SyscallConn fails with the refusal, by which a pool that kept the connection finds that it is dead.
func (c *refusedConn) SyscallConn() (syscall.RawConn, error) { return nil, c.refusal }

// Close does nothing.
func (c *refusedConn) Close() error { return nil }

// LocalAddr and RemoteAddr return an address that nothing has.
func (c *refusedConn) LocalAddr() net.Addr  { return &net.TCPAddr{} }
func (c *refusedConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// SetDeadline and its kin do nothing: no use of the connection takes time.
func (c *refusedConn) SetDeadline(time.Time) error      { return nil }
func (c *refusedConn) SetReadDeadline(time.Time) error  { return nil }
func (c *refusedConn) SetWriteDeadline(time.Time) error { return nil }
