package embeddedredis

import (
	"fmt"
	"sync"

	"github.com/alicebob/miniredis/v2"
)

// Server is a Redis inside the process. It is safe for concurrent use.
type Server struct {
	addr  string
	redis *miniredis.Miniredis
	close sync.Once
}

// Start returns an empty server that listens on a free port of 127.0.0.1. Several can run at once, each with its own
// data. Every local user can connect. Close the server to free its port and memory.
func Start() (*Server, error) {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		return nil, fmt.Errorf("embeddedredis: %w", err)
	}
	m.Server().SetPreHook(newClock(m).tick)
	return &Server{addr: m.Addr(), redis: m}, nil
}

// Addr returns the server's address, host:port. It does not change after Close.
func (s *Server) Addr() string { return s.addr }

// Close disconnects all clients, frees the port and drops the data. Further calls do nothing. The error is always nil;
// it makes a Server an io.Closer.
func (s *Server) Close() error {
	s.close.Do(s.redis.Close)
	return nil
}
