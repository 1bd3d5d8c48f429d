// Package server runs the redis-servers of a benchmark: each a process of its own on a free port, with nothing on disk,
// and behind a proxy as far away as is wanted.
package server

import (
	"context"
	"fmt"
	"net"
	"os"
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
	args  []string // of its command line
	log   string
	probe *redis.Client
}

// Start runs a server in the directory, where its log goes, and returns when it answers. It writes nothing to disk, unless
// args say otherwise: they are added to its command line.
func Start(ctx context.Context, dir string, args ...string) (*Server, error) {
	number, err := process.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(number)
	s := newServer(dir, port, append([]string{
		"--bind", process.Loopback, "--port", port, "--dir", dir, "--save", "", "--appendonly", "no",
	}, args...)...)
	if err := s.launch(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// StartDurable runs a server that finds its data again after [Server.Restart].
func StartDurable(ctx context.Context, dir string) (*Server, error) {
	own, err := os.MkdirTemp(dir, "redis-")
	if err != nil {
		return nil, err
	}
	return Start(ctx, own, "--appendonly", "yes")
}

func newServer(dir, port string, args ...string) *Server {
	addr := net.JoinHostPort(process.Loopback, port)
	return &Server{addr: addr, args: args, log: filepath.Join(dir, "redis-"+port+".log"), probe: redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: 1, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
	})}
}

// launch starts the process and returns when it answers. After an error none is left.
func (s *Server) launch(ctx context.Context) (err error) {
	if s.Process, err = process.Start(process.Command{Path: "redis-server", Args: s.args, Log: s.log}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := process.Poll(ctx, s.Exited(), func() error { return s.answers(ctx) }); err != nil {
		s.Kill()
		return fmt.Errorf("redis-server does not start: %w; its log ends:\n%s", err, process.LogTail(s.log, 0))
	}
	return nil
}

// Restart kills the process and runs it again on the same port, and returns when it answers.
func (s *Server) Restart(ctx context.Context) error {
	s.Process.Kill()
	return s.launch(ctx)
}

// answers returns nil when this very process answers: another one may have taken the port.
func (s *Server) answers(ctx context.Context) error {
	// The client is not asked before the server listens: it would rest for a second after a dial that was refused.
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	_ = conn.Close()
	if err := s.probe.Ping(ctx).Err(); err != nil {
		return err // it still reads its data
	}
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
