package pipeline

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Caller makes calls, as a [Server] does.
type Caller interface {
	Run(ctx context.Context, c *Call) (reply any, err error)
	Finish(ctx context.Context, c *Call) (reply any, err error)
}

// To returns what makes calls to the Redis of a client: to one server, or to the masters of a Redis Cluster. It sends each call of
// any other kind of client on its own, because it may be for several servers.
func To(client redis.UniversalClient, opts Options) Caller {
	alone := opts
	alone.Leaders = 0
	switch c := client.(type) {
	case *redis.Client:
		return New(client, opts)
	case *redis.ClusterClient:
		return &masters{client: c, opts: opts, alone: New(client, alone)}
	default:
		return New(client, alone)
	}
}

// masters makes calls to the masters of a Redis Cluster. Each has pipelines of its own, so that one which does not answer delays no
// calls to the others. The client sends what it pipelines to where it belongs, also when slots have moved.
type masters struct {
	client  *redis.ClusterClient
	opts    Options
	alone   *Server     // sends each call on its own
	loaded  atomic.Bool // the client knows which master has which slots, so that asking it takes no time
	servers sync.Map    // *Server, by the address of the master
}

// of returns the Server of the master that has the keys of a call.
func (m *masters) of(c *Call) *Server {
	if !m.loaded.Load() {
		return m.alone
	}
	key, _ := c.command.keyArgs()[0].(string)
	master, err := m.client.MasterForKey(context.Background(), key)
	if err != nil {
		return m.alone
	}
	addr := master.Options().Addr
	known, ok := m.servers.Load(addr)
	if !ok {
		s := New(m.client, m.opts)
		s.several = true
		known, _ = m.servers.LoadOrStore(addr, s)
	}
	s, _ := known.(*Server)
	return s
}

// Run does what that of the master's Server does.
func (m *masters) Run(ctx context.Context, c *Call) (reply any, err error) {
	s := m.of(c)
	reply, err = s.Run(ctx, c)
	m.answered(s, err)
	return reply, err
}

// Finish does what that of the master's Server does.
func (m *masters) Finish(ctx context.Context, c *Call) (reply any, err error) {
	s := m.of(c)
	reply, err = s.Finish(ctx, c)
	m.answered(s, err)
	return reply, err
}

// answered notes that a call has found its master.
func (m *masters) answered(s *Server, err error) {
	if s == m.alone && (err == nil || isReply(err)) {
		m.loaded.Store(true)
	}
}
