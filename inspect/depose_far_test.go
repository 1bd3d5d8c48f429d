package inspect_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/locking"
)

// farConn is a connection to a server from which each answer takes 70 ms: longer than a worker would wait for it.
type farConn struct{ net.Conn }

func (c farConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	<-time.After(70 * time.Millisecond)
	return n, err
}

func TestDeposeWaitsForServersThatAreFarAway(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	before, err := p.holder.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var far []*redis.Options
	for _, node := range p.nodes {
		o := *node
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return farConn{conn}, err
		}
		far = append(far, &o)
	}
	defaults := locking.RedlockOptions{Guard: locking.GuardOff}
	i := newInspector(t, inspect.Options{Tasks: p.client, Nodes: far, Redlock: defaults})
	floor, err := i.Depose(t.Context(), "k", by(p.owner("k")))
	if err != nil {
		t.Fatal(err)
	}
	p.wantNext(p.locks, floor, before)
}
