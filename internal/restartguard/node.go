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

// Protect changes o so that a client made from it vets each server on a new connection, and does not dial a refused
// one. It wraps the Dialer and OnConnect of o, which is called once the server is accepted. Call Protect once for each
// o, when the rest of o is complete.
//
// The client should have MaxRetries -1, because a retry asks the same server, and no MinIdleConns, which dial without a
// call. A refused call fails with a [RefusedError].
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

// Identity returns the identity of the server that was vetted last, for [Script]. It is empty, which matches no server,
// while the server is refused or unknown.
func (n *Node) Identity() string {
	if id := n.identity.Load(); id != nil {
		return *id
	}
	return ""
}

// Reject vets the facts that a [Script] returned about another server. It returns the refusal, until the end of which
// the server is not dialled. It returns nil if the other server may vote: then repeat the call.
func (n *Node) Reject(f Facts) error {
	if refusal := n.decide("", f); refusal != nil {
		return refusal
	}
	return nil
}

// connect vets the server on a new connection.
func (n *Node) connect(ctx context.Context, addr string, cn *redis.Conn) error {
	f, err := ask(ctx, cn, n.guard.mode)
	switch {
	case err == nil:
		if refusal := n.decide(addr, f); refusal != nil {
			return refusal
		}
		if n.guard.mode != Off {
			mark(ctx, cn, f, n.guard.limits.MaxTTL)
		}
		return nil
	case n.guard.mode == Off || errors.Is(ctx.Err(), context.Canceled):
		return err // a caller that gives up says nothing about the server
	}
	return n.failed(addr, err, !isIO(err))
}

// decide vets facts, and allows or refuses dials accordingly.
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

// ask returns the facts about a server on a new connection. With [Off] they are only the run_id, which is empty if the
// server does not know INFO.
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
	marked := pipe.Get(ctx, MarkKey)
	if _, err := pipe.Exec(ctx); isIO(err) {
		return Facts{}, err
	}
	for _, c := range []redis.Cmder{clock, server, replication, memory} { // a mark that cannot be read is none
		if err := c.Err(); err != nil {
			return Facts{}, err
		}
	}
	f, err := ParseFacts(server.Val(), replication.Val(), memory.Val())
	if err != nil {
		return Facts{}, &parseError{err}
	}
	return f.Timed(clock.Val(), sent, time.Now()).Marked(marked.Val()), nil
}

// parseError is the error of a reply that cannot be parsed.
type parseError struct{ error }

// isIO reports whether err is an error of the connection, not of a reply.
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
