// Package server runs the redis-servers of a benchmark: each a process of its own on a free port, with nothing on disk.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	loopback     = "127.0.0.1"
	readyTimeout = 10 * time.Second
)

// Server is a redis-server that this program has started.
type Server struct {
	addr   string
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone
	probe  *redis.Client
}

// Start runs a server in the directory, where its log goes, and returns when it answers.
func Start(ctx context.Context, dir string) (*Server, error) {
	for range 20 {
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		s, err := start(dir, port)
		if err != nil {
			return nil, err
		}
		if err = s.await(ctx); err == nil {
			return s, nil
		}
		s.Kill()
		if ctx.Err() != nil {
			return nil, err
		}
		// Most likely another process took the port first.
	}
	return nil, fmt.Errorf("redis-server does not start; its log is in %s", dir)
}

// Addr is the server's address.
func (s *Server) Addr() string { return s.addr }

// Probe is a client for looking at the server, not for the load.
func (s *Server) Probe() *redis.Client { return s.probe }

// Pause stops the process as it is: connections stay open and nothing is answered.
func (s *Server) Pause() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets a paused process run on.
func (s *Server) Resume() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

// Kill ends the process at once, also a paused one, and returns when it is gone.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
	_ = s.probe.Close()
}

// Age is for how long the server has run by its own account, in whole seconds.
func (s *Server) Age(ctx context.Context) (time.Duration, error) {
	info, err := s.probe.InfoMap(ctx, "server").Result()
	if err != nil {
		return 0, err
	}
	seconds, err := strconv.Atoi(info["Server"]["uptime_in_seconds"])
	return time.Duration(seconds) * time.Second, err
}

func start(dir string, port int) (*Server, error) {
	addr := net.JoinHostPort(loopback, strconv.Itoa(port))
	log, err := os.OpenFile(filepath.Join(dir, "redis-"+strconv.Itoa(port)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command("redis-server", //nolint:noctx // it ends by Kill
		"--bind", loopback, "--port", strconv.Itoa(port), "--dir", dir, "--save", "", "--appendonly", "no")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = DieWithParent()
	s := &Server{
		addr: addr, cmd: cmd, exited: make(chan struct{}),
		probe: redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true}),
	}
	started := make(chan error)
	go func() {
		// The death signal comes when the thread that forked ends: keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(err, s.probe.Close())
	}
	return s, nil
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
			if got := info["Server"]["process_id"]; got != strconv.Itoa(s.cmd.Process.Pid) {
				return fmt.Errorf("process %s answers on %s", got, s.addr)
			}
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-s.exited:
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

func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return 0, err
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("%s is not a TCP address", l.Addr())
	}
	return addr.Port, nil
}
