package restartguard

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Node is one node of a Redlock. It is safe for concurrent use.
type Node struct {
	guard *Guard
	index int

	breaker  atomic.Pointer[breaker] // nil while dials are accepted
	identity atomic.Pointer[string]  // of the vetted server; nil while refused

	mu    sync.Mutex // held to change the breaker
	fails int        // in a row
}

// Protect makes a client that is built from o ask every server for its identity before use, and keeps it from dialling
// a refused one. It keeps o's own Dialer and OnConnect, which is called after the server was accepted. Call it once for
// each o, when the rest of o is complete.
//
// The client should have MaxRetries -1, because a retry asks the same server, and no MinIdleConns, which would dial for
// no call. A refused call fails with a [RefusedError].
func (n *Node) Protect(o *redis.Options) {
	dial, connected, addr := o.Dialer, o.OnConnect, o.Addr
	if dial == nil {
		if o.DialTimeout == 0 {
			o.DialTimeout = 5 * time.Second // the default of go-redis, which the dialer would not see
		}
		dial = redis.NewDialer(o)
	}
	o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		return n.dial(ctx, addr, func() (net.Conn, error) { return dial(ctx, network, address) })
	}
	o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		if err := n.connect(ctx, addr, cn); err != nil {
			return err
		}
		if connected != nil {
			return connected(ctx, cn)
		}
		return nil
	}
}

// Identity returns the identity of the server that was vetted last, for [Script]. It is empty while the server is
// refused or unknown, which equals no server's identity.
func (n *Node) Identity() string {
	if id := n.identity.Load(); id != nil {
		return *id
	}
	return ""
}

// Reject vets facts that [Script] returned instead of running. It returns the refusal, after which the server is not
// dialled until the refusal is over; or nil when the server is good and only its identity is new: then repeat the call.
func (n *Node) Reject(f Facts) error {
	if refusal := n.decide("", f); refusal != nil {
		return refusal
	}
	return nil
}

// connect vets the server at the other end of a new connection.
func (n *Node) connect(ctx context.Context, addr string, cn *redis.Conn) error {
	f, err := ask(ctx, cn, n.guard.mode)
	switch {
	case err == nil:
		if refusal := n.decide(addr, f); refusal != nil {
			return refusal
		}
		return nil
	case n.guard.mode == Off || errors.Is(ctx.Err(), context.Canceled):
		return err // a caller that gives up says nothing about the server
	}
	return n.failed(addr, err, !isIO(err))
}

// decide vets facts, and accepts or refuses dials.
func (n *Node) decide(addr string, f Facts) *RefusedError {
	refusal := n.guard.vet(n.index, f, time.Now())
	if refusal == nil {
		id := f.Identity()
		n.identity.Store(&id)
		n.accept()
		return nil
	}
	refusal.Node, refusal.Addr = n.index, addr
	n.identity.Store(nil)
	n.refuse(refusal)
	return refusal
}

// ask reads the facts of a server over a new connection. With [Off] it asks for the run_id alone, and a server that
// does not know INFO has none.
func ask(ctx context.Context, cn *redis.Conn, mode Mode) (Facts, error) {
	if mode == Off {
		server, err := cn.Info(ctx, "server").Result()
		if isIO(err) {
			return Facts{}, err
		}
		in := info{}
		_ = in.add("server", server)
		return Facts{RunID: in["run_id"]}, nil
	}
	sent := time.Now()
	pipe := cn.Pipeline()
	clock := pipe.Time(ctx)
	// One section each: Redis 6.2 takes no more.
	server, replication, memory := pipe.Info(ctx, "server"), pipe.Info(ctx, "replication"), pipe.Info(ctx, "memory")
	if _, err := pipe.Exec(ctx); err != nil {
		return Facts{}, err
	}
	f, err := ParseFacts(server.Val(), replication.Val(), memory.Val())
	if err != nil {
		return Facts{}, &parseError{err}
	}
	return f.Timed(clock.Val(), sent, time.Now()), nil
}

// parseError is a reply that cannot be read.
type parseError struct{ error }

// isIO reports whether an error is one of the connection, not a reply.
func isIO(err error) bool {
	if err == nil {
		return false
	}
	if _, ok := errors.AsType[*parseError](err); ok {
		return false
	}
	_, answered := errors.AsType[redis.Error](err)
	return !answered
}
