// Package server runs the redis-servers of a benchmark: each a process of its own on a free port, with nothing on disk,
// and behind a proxy as far away as is wanted.
package server

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/process"
)

// Server is a redis-server that this program has started.
type Server struct {
	*process.Process

	addr  string
	probe *redis.Client
}

// Start runs a server in the directory, where its log goes, and returns when it answers.
func Start(ctx context.Context, dir string) (*Server, error) {
	number, err := process.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(number)
	log := filepath.Join(dir, "redis-"+port+".log")
	p, err := process.Start(process.Command{
		Path: "redis-server", Log: log,
		Args: []string{"--bind", process.Loopback, "--port", port, "--dir", dir, "--save", "", "--appendonly", "no"},
	})
	if err != nil {
		return nil, err
	}
	addr := net.JoinHostPort(process.Loopback, port)
	probe := redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: 1, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
	})
	s := &Server{Process: p, addr: addr, probe: probe}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := process.Poll(ctx, p.Exited(), func() error { return s.answers(ctx) }); err != nil {
		s.Kill()
		return nil, fmt.Errorf("redis-server does not start: %w; its log ends:\n%s", err, process.LogTail(log, 0))
	}
	return s, nil
}

// answers returns nil when this very process answers: another one may have taken the port.
func (s *Server) answers(ctx context.Context) error {
	// The client is not asked before the server listens: it would rest for a second after a dial that was refused.
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	_ = conn.Close()
	info, err := s.probe.InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	if got := info["Server"]["process_id"]; got != strconv.Itoa(s.PID()) {
		return fmt.Errorf("process %s answers on %s", got, s.addr)
	}
	return nil
}

// Addr is the server's address.
func (s *Server) Addr() string { return s.addr }

// Probe is a client for looking at the server, not for the load.
func (s *Server) Probe() *redis.Client { return s.probe }

// Kill ends the process at once, also a paused one, and returns when it is gone.
func (s *Server) Kill() {
	s.Process.Kill()
	_ = s.probe.Close()
}

// StartAll starts n servers.
func StartAll(ctx context.Context, dir string, n int) (servers []*Server, err error) {
	for range n {
		s, err := Start(ctx, dir)
		if err != nil {
			KillAll(servers)
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// KillAll ends servers at once and returns when they are gone.
func KillAll(servers []*Server) {
	for _, s := range servers {
		s.Kill()
	}
}

// Addrs returns the servers' addresses.
func Addrs(servers []*Server) []string {
	all := make([]string, len(servers))
	for i, s := range servers {
		all[i] = s.addr
	}
	return all
}
