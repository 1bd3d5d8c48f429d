package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/railtoken/railtoken/internal/testing/process"
)

const (
	loopback     = process.Loopback
	readyTimeout = 30 * time.Second
	stopTimeout  = 10 * time.Second
)

// A Server is a redis-server process that belongs to one test. Its methods may be called from any goroutine, except
// that those with a [testing.TB] must be called from the goroutine of the test.
type Server struct {
	bin      string
	dir      string
	extra    []string
	password string
	port     int

	mu   sync.Mutex
	proc *process.Process // nil when not running
}

// Start runs a redis-server on a free port of 127.0.0.1 and returns when it answers. It keeps nothing on disk, unless args
// say otherwise: they are added to its command line, for example "--appendonly", "yes". Its directory is tb.TempDir(), and it
// is stopped at the end of the test; a failed test shows the end of its log.
//
// Where no redis-server is installed, Start skips the test, or fails it when REDISTEST_REQUIRE is set. It needs real
// time, so it does not work inside a synctest bubble: see [Virtual].
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := &Server{bin: binary(tb), dir: tb.TempDir(), extra: args, password: passwordIn(args)}
	tb.Cleanup(func() {
		s.Stop()
		if tb.Failed() {
			tb.Logf("end of the log of redis-server %s:\n%s", s.Addr(), process.LogTail(s.log(), 0))
		}
	})

	s.port = freePort(tb)
	if err := s.run(); err != nil {
		tb.Fatal(err)
	}
	return s
}

// freePort reserves a port for a server, whose bus port is free too.
func freePort(tb testing.TB) int {
	tb.Helper()
	port, err := process.FreePort(tb.Context(), busPortOffset)
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// Addr is the server's address, host:port. It stays the same over Stop, Kill and Restart.
func (s *Server) Addr() string {
	return net.JoinHostPort(loopback, strconv.Itoa(s.port))
}

// PID is the process ID of the running server, 0 when it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.PID()
}

// Client returns a new client of the server, closed at the end of the test. Each mod may change its options first.
func (s *Server) Client(tb testing.TB, mod ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	opt := s.options()
	for _, m := range mod {
		m(opt)
	}
	return closing(tb, redis.NewClient(opt))
}

// Stop ends the server as an operator would, by SHUTDOWN NOSAVE, and returns when the process is gone. What the append-only
// file holds stays for Restart. A server that does not listen is told by a signal, and killed after ten seconds.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return
	}
	_ = s.proc.Resume()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if s.shutdown(ctx) != nil {
		_ = s.proc.Interrupt()
	}
	select {
	case <-s.proc.Exited():
	case <-ctx.Done():
		s.proc.Kill()
	}
	s.proc = nil
}

// Kill ends the server as a crash would, by SIGKILL, and returns when the process is gone.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return
	}
	s.proc.Kill()
	s.proc = nil
}

// Restart runs the server again on the same port and in the same directory, and returns when it answers. A server that still
// runs is stopped first. Data comes back only as far as the append-only file, when turned on, has it.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Stop()
	if err := s.run(); err != nil {
		tb.Fatal(err)
	}
}

// Pause freezes the process by SIGSTOP: connections stay open and nothing is answered until Resume. On Linux the server
// executes nothing more once Pause has returned; elsewhere it may still finish the command at hand. A server that does not run
// is left alone.
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		_ = s.proc.Pause()
	}
}

// Resume lets a paused process run on. What clients sent in the meantime is answered then.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		_ = s.proc.Resume()
	}
}

// run starts the process, with more arguments if given, and returns when it answers. After an error no process is left.
func (s *Server) run(more ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	logStart := process.LogSize(s.log())
	proc, err := process.Start(process.Command{Path: s.bin, Args: append(s.args(), more...), Dir: s.dir, Log: s.log()})
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	err = process.Poll(ctx, proc.Exited(), func() error { return s.probe(ctx, proc.PID()) })
	if err == nil {
		s.proc = proc
		return nil
	}
	proc.Kill()
	return fmt.Errorf("redistest: redis-server %s did not start: %w; its log ends:\n%s", s.Addr(), err,
		process.LogTail(s.log(), logStart))
}

func (s *Server) args() []string {
	return slices.Concat([]string{
		"--bind", loopback,
		"--port", strconv.Itoa(s.port),
		"--save", "",
		"--appendonly", "no",
	}, s.extra)
}

func (s *Server) options() *redis.Options {
	return &redis.Options{
		Addr:                     s.Addr(),
		Password:                 s.password,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// impatient returns a client that gives up at the first failure.
func (s *Server) impatient() *redis.Client {
	opt := s.options()
	opt.MaxRetries = -1
	opt.DialerRetries = 1
	opt.ContextTimeoutEnabled = true
	return redis.NewClient(opt)
}

// probe succeeds when the process with this ID serves the port and has loaded its data. The ID matters: when another test's
// server took the port first, that one answers PING just as well.
func (s *Server) probe(ctx context.Context, pid int) error {
	// go-redis logs each refused dial, and the first ones always are.
	if err := listens(ctx, s.Addr()); err != nil {
		return err
	}
	c := s.impatient()
	defer c.Close()
	if err := c.Ping(ctx).Err(); err != nil {
		return err
	}
	info, err := c.InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	if got := info["Server"]["process_id"]; got != strconv.Itoa(pid) {
		return fmt.Errorf("process %s answers on %s, want %d", got, s.Addr(), pid)
	}
	return nil
}

func (s *Server) shutdown(ctx context.Context) error {
	c := s.impatient()
	defer c.Close()
	return c.ShutdownNoSave(ctx).Err()
}

// log is where the server's output goes.
func (s *Server) log() string { return filepath.Join(s.dir, "redis.log") }

func listens(ctx context.Context, addr string) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return c.Close()
}

// passwordIn returns the password that these arguments make the server ask for.
func passwordIn(args []string) string {
	if i := slices.Index(args, "--requirepass"); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// closing closes c at the end of the test, after everything that the test registers later.
func closing[C interface{ Close() error }](tb testing.TB, c C) C {
	tb.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			tb.Errorf("redistest: closing the client: %v", err)
		}
	})
	return c
}

// Commands returns how many commands the server of a client has carried out, those included that scripts have called.
func Commands(tb testing.TB, client redis.UniversalClient) (n int) {
	tb.Helper()
	stats, err := client.Info(tb.Context(), "commandstats").Result()
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.SplitSeq(stats, "\r\n") {
		_, stat, _ := strings.Cut(line, ":calls=")
		calls, _, _ := strings.Cut(stat, ",")
		if one, err := strconv.Atoi(calls); err == nil {
			n += one
		}
	}
	return n
}
