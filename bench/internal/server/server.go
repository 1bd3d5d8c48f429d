// Package server runs the redis-servers of a benchmark: each a process of its own on a free port, with nothing on disk.
package server

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/process"
)

const readyTimeout = 10 * time.Second

// Server is a redis-server that this program has started.
type Server struct {
	*process.Process

	addr  string
	probe *redis.Client
}

// Start runs a server in the directory, where its log goes, and returns when it answers.
func Start(ctx context.Context, dir string) (*Server, error) {
	addrs, err := process.FreeAddrs(ctx, 1)
	if err != nil {
		return nil, err
	}
	s, err := start(dir, addrs[0])
	if err != nil {
		return nil, err
	}
	if err := s.await(ctx); err != nil {
		s.Kill()
		return nil, fmt.Errorf("redis-server does not start; its log is in %s: %w", dir, err)
	}
	return s, nil
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

func start(dir, addr string) (*Server, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	p, err := process.Start(process.Command{
		Path: "redis-server", Log: filepath.Join(dir, "redis-"+port+".log"),
		Args: []string{"--bind", process.Loopback, "--port", port, "--dir", dir, "--save", "", "--appendonly", "no"},
	})
	if err != nil {
		return nil, err
	}
	probe := redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: 1, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
	})
	return &Server{Process: p, addr: addr, probe: probe}, nil
}

// await returns when this very process answers: another one may have taken the port.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		// The client is not asked before the server listens: it would rest for a second after a dial that was refused.
		err := listens(ctx, s.addr)
		if err == nil {
			info, err := s.probe.InfoMap(ctx, "server").Result()
			if err != nil {
				return err
			}
			if got := info["Server"]["process_id"]; got != strconv.Itoa(s.PID()) {
				return fmt.Errorf("process %s answers on %s", got, s.addr)
			}
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-s.Exited():
			return fmt.Errorf("redis-server %s has ended: %w", s.addr, err)
		case <-ctx.Done():
			return fmt.Errorf("redis-server %s: %w", s.addr, err)
		}
	}
}

func listens(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}
