package restartguard_test

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/restartguard"
)

var errDown = errors.New("no server listens")

// fakeServer answers dials, with an error when it has one.
type fakeServer struct {
	err   error
	dials int // those that came through
}

// guarded returns the node of the server and its guarded dialer.
func (s *fakeServer) guarded(
	t *testing.T, mode restartguard.Mode,
) (n *restartguard.Node, dial func(context.Context) error) {
	t.Helper()
	n = newGuard(t, 1, restartguard.Options{Mode: mode, MaxTTL: ttl}).Node(0)
	o := &redis.Options{Addr: "node:6379", Dialer: func(context.Context, string, string) (net.Conn, error) {
		s.dials++
		if s.err != nil {
			return nil, s.err
		}
		client, server := net.Pipe()
		return client, server.Close()
	}}
	n.Protect(o)
	return n, func(ctx context.Context) error {
		conn, err := o.Dialer(ctx, "tcp", o.Addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("x")); !errors.Is(err, restartguard.ErrRefused) {
			return nil // it was really dialled
		}
		_, err = conn.Read(make([]byte, 1))
		return err
	}
}

func TestPausesGrowAfterFailedDials(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fakeServer{err: errDown}
		n, dial := server.guarded(t, restartguard.Connect)
		for i, ms := range []int{50, 100, 200, 400, 800, 1000, 1000, 1000} {
			most := time.Duration(ms) * time.Millisecond
			if err := n.Blocked(); err != nil {
				t.Fatalf("before dial %d: %v", i+1, err)
			}
			refusal := refusedFor(t, dial(t.Context()), restartguard.Unreachable)
			if !errors.Is(refusal, errDown) || refusal.Addr != "node:6379" {
				t.Fatalf("refusal %v does not tell of %v at node:6379", refusal, errDown)
			}
			pause := time.Until(refusal.Until)
			if pause < most/2 || pause > most {
				t.Fatalf("pause %d is %v, want %v to %v", i+1, pause, most/2, most)
			}
			time.Sleep(pause - 1)
			if got := dial(t.Context()); !errors.Is(got, refusal) || !errors.Is(n.Blocked(), refusal) ||
				server.dials != i+1 {
				t.Fatalf("within the pause: %v, blocked %v, %d dials; want the last refusal", got, n.Blocked(),
					server.dials)
			}
			time.Sleep(time.Nanosecond)
		}
	})
}

func TestPausesStartAnewAfterSuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fakeServer{err: errDown}
		n, dial := server.guarded(t, restartguard.Connect)
		refusedFor(t, n.Reject(facts(time.Now(), 0)), restartguard.Young)
		time.Sleep(ttl)
		for range 8 {
			time.Sleep(time.Until(refusedFor(t, dial(t.Context()), restartguard.Unreachable).Until))
		}
		if err := n.Reject(facts(time.Now(), ttl)); err != nil {
			t.Fatal(err)
		}
		refusal := refusedFor(t, dial(t.Context()), restartguard.Unreachable)
		if pause := time.Until(refusal.Until); pause > 50*time.Millisecond {
			t.Errorf("the pause after a success is %v, want the first one", pause)
		}
	})
}

func TestPausesStartAnewAfterAVerdict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fakeServer{err: errDown}
		n, dial := server.guarded(t, restartguard.Connect)
		for range 8 {
			time.Sleep(time.Until(refusedFor(t, dial(t.Context()), restartguard.Unreachable).Until))
		}
		young := refusedFor(t, n.Reject(facts(time.Now(), 0)), restartguard.Young)
		time.Sleep(time.Until(young.Until))
		refusal := refusedFor(t, dial(t.Context()), restartguard.Unreachable)
		if pause := time.Until(refusal.Until); pause > 50*time.Millisecond {
			t.Errorf("the pause after a refusal by its facts is %v, want the first one", pause)
		}
	})
}

func TestPausesOfNodesDiffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pauses := map[time.Duration]bool{}
		for range 20 {
			server := fakeServer{err: errDown}
			_, dial := server.guarded(t, restartguard.Connect)
			pauses[time.Until(refusedFor(t, dial(t.Context()), restartguard.Unreachable).Until)] = true
		}
		if len(pauses) == 1 {
			t.Error("20 nodes that fail at once are asked again at once")
		}
	})
}

func TestManyFailuresAtOnceAreOnePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newGuard(t, 1, restartguard.Options{MaxTTL: ttl}).Node(0)
		o := &redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(time.Millisecond)
			return nil, errDown
		}}
		n.Protect(o)
		for range 20 {
			go o.Dialer(t.Context(), "tcp", "")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		refusal := refusedFor(t, n.Blocked(), restartguard.Unreachable)
		if pause := time.Until(refusal.Until); pause > 50*time.Millisecond {
			t.Errorf("the pause after 20 dials that failed together is %v, want that of one", pause)
		}
	})
}

// When a pause is over one dial is made. Until it is judged others are refused, at most for a second.
func TestOneProbeAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fakeServer{err: errDown}
		n, dial := server.guarded(t, restartguard.Connect)
		refusal := refusedFor(t, dial(t.Context()), restartguard.Unreachable)
		time.Sleep(time.Until(refusal.Until))
		server.err = nil
		if err := dial(t.Context()); err != nil {
			t.Fatalf("probe: %v", err)
		}
		for range 10 {
			refusedFor(t, dial(t.Context()), restartguard.Unreachable)
		}
		refusedFor(t, n.Blocked(), restartguard.Unreachable)
		if server.dials != 2 {
			t.Errorf("%d dials, want 2", server.dials)
		}
		time.Sleep(time.Second - 1)
		refusedFor(t, dial(t.Context()), restartguard.Unreachable)
		time.Sleep(time.Nanosecond)
		if err := errors.Join(n.Blocked(), dial(t.Context())); err != nil {
			t.Errorf("a second after a probe that was not judged: %v", err)
		}
	})
}

func TestACallerThatGivesUpShutsNoOtherOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fakeServer{err: errDown}
		n, dial := server.guarded(t, restartguard.Connect)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := dial(ctx); !errors.Is(err, errDown) || errors.Is(err, restartguard.ErrRefused) {
			t.Errorf("dial: %v, want the error of the dialer", err)
		}
		if err := n.Blocked(); err != nil {
			t.Errorf("blocked: %v", err)
		}
	})
}

func TestOffMakesNoPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fakeServer{err: errDown}
		n, dial := server.guarded(t, restartguard.Off)
		for range 3 {
			if err := dial(t.Context()); !errors.Is(err, errDown) || errors.Is(err, restartguard.ErrRefused) {
				t.Errorf("dial: %v, want the error of the dialer", err)
			}
		}
		if err := n.Blocked(); err != nil || server.dials != 3 {
			t.Errorf("blocked: %v, %d dials; want 3", err, server.dials)
		}
	})
}

func TestRefusedConnectionIsDead(t *testing.T) {
	t.Parallel()
	n := newGuard(t, 1, restartguard.Options{MaxTTL: ttl}).Node(0)
	o := &redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errDown }}
	n.Protect(o)
	conn, err := o.Dialer(t.Context(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(conn.SetDeadline(time.Now()), conn.SetReadDeadline(time.Now()),
		conn.SetWriteDeadline(time.Now())); err != nil {
		t.Error(err)
	}
	for name, use := range map[string]func([]byte) (int, error){"Read": conn.Read, "Write": conn.Write} {
		if n, err := use(make([]byte, 1)); n != 0 || !errors.Is(err, restartguard.ErrRefused) {
			t.Errorf("%s: %d bytes, %v; want none and a refusal", name, n, err)
		}
	}
	if _, err := conn.(syscall.Conn).SyscallConn(); !errors.Is(err, restartguard.ErrRefused) {
		t.Errorf("SyscallConn: %v, want a refusal", err)
	}
	if conn.LocalAddr().String() != ":0" || conn.RemoteAddr().String() != ":0" || conn.Close() != nil {
		t.Error("a connection to nowhere has an address or cannot be closed")
	}
}
