package embeddedredis

import (
	"fmt"
	"sync"

	"github.com/alicebob/miniredis/v2"
)

// A Server is a Redis inside the process. Its methods are safe for concurrent use.
type Server struct {
	addr  string
	redis *miniredis.Miniredis
	close sync.Once
}

// Start returns an empty server that listens on a free port of 127.0.0.1. Several may run at once; none shares data with another.
// Every local user can connect. Close it to free the port and the memory.
func Start() (*Server, error) {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		return nil, fmt.Errorf("embeddedredis: %w", err)
	}
	m.Server().SetPreHook(newClock(m).tick)
	return &Server{addr: m.Addr(), redis: m}, nil
}

// Addr is the server's address, host:port. It stays the same after Close.
func (s *Server) Addr() string { return s.addr }

// Close disconnects all clients, frees the port and drops the data. Further calls do nothing. The error is always nil: it is
// there so that a Server is an io.Closer.
func (s *Server) Close() error {
	s.close.Do(s.redis.Close)
	return nil
}
