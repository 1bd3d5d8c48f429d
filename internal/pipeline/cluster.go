package pipeline

import (
	"context"
	"sync"

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
	switch c := client.(type) {
	case *redis.Client:
	case *redis.ClusterClient:
		return &masters{client: c, opts: opts}
	default:
		opts.Leaders = 0
	}
	return New(client, opts)
}

// masters makes calls to the masters of a Redis Cluster. Each has pipelines of its own, so that one which does not answer delays no
// calls to the others. The client sends what it pipelines to where it belongs, also when slots have moved.
type masters struct {
	client *redis.ClusterClient
	opts   Options

	servers sync.Map // *Server, by the client of the master; by nil for calls whose master is not known
}

// of returns the Server of the master that has the keys of a call.
func (m *masters) of(ctx context.Context, c *Call) *Server {
	key, _ := c.command.keyArgs()[0].(string)
	master, _ := m.client.MasterForKey(ctx, key) // the call meets the error, too
	known, ok := m.servers.Load(master)
	if !ok {
		s := New(m.client, m.opts)
		s.unbatched = true // the slots differ
		known, _ = m.servers.LoadOrStore(master, s)
	}
	s, _ := known.(*Server)
	return s
}

func (m *masters) Run(ctx context.Context, c *Call) (reply any, err error) {
	return m.of(ctx, c).Run(ctx, c)
}

func (m *masters) Finish(ctx context.Context, c *Call) (reply any, err error) {
	return m.of(ctx, c).Finish(ctx, c)
}
