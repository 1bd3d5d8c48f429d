package redistest_test

import (
	"context"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestStartGivesEachTestAnEmptyServerOfItsOwn(t *testing.T) {
	t.Parallel()
	a, b := redistest.Start(t), redistest.Start(t)
	if a.Addr() == b.Addr() {
		t.Fatalf("both servers are at %s", a.Addr())
	}
	ctx := t.Context()
	if err := a.Client(t).Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Client(t).Exists(ctx, "k").Result(); err != nil || n != 0 {
		t.Errorf("the second server has %d of the first one's keys, %v", n, err)
	}
	info, err := a.Client(t).InfoMap(ctx, "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info["Server"]["process_id"], strconv.Itoa(a.PID()); got != want {
		t.Errorf("process %s answers, PID says %s", got, want)
	}
}

func TestStartStopsTheServerWhenTheTestEnds(t *testing.T) {
	t.Parallel()
	var addr string
	if !t.Run("inner", func(t *testing.T) {
		addr = redistest.Start(t).Addr()
	}) {
		return
	}
	if addr == "" {
		t.Skip("needs redis-server: the inner test was left out")
	}
	if refused(addr) == nil {
		t.Errorf("%s still accepts connections", addr)
	}
}

func TestKillLosesWhatWasNotPersisted(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	ctx := t.Context()
	if err := c.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	addr, pid := s.Addr(), s.PID()
	s.Kill()
	if err := refused(addr); err == nil {
		t.Error("the killed server still accepts connections")
	}
	if s.PID() != 0 {
		t.Errorf("PID is %d after Kill", s.PID())
	}
	s.Restart(t)
	if s.Addr() != addr || s.PID() == pid {
		t.Errorf("restarted at %s as %d, was at %s as %d", s.Addr(), s.PID(), addr, pid)
	}
	if n, err := c.Exists(ctx, "k").Result(); err != nil || n != 0 {
		t.Errorf("the same client sees %d keys after the crash, %v; want 0", n, err)
	}
}

func TestPausedServerAnswersNothingUntilResume(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t, func(o *redis.Options) {
		o.MaxRetries = -1
		o.ReadTimeout = -1
		o.ContextTimeoutEnabled = true
	})
	ctx := t.Context()
	if err := c.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}

	s.Pause()
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	if err := c.Ping(short).Err(); err == nil {
		t.Error("a paused server answered")
	}
	answer := make(chan error, 1)
	go func() { answer <- c.Set(ctx, "k", "v", 0).Err() }()
	s.Resume()
	if err := <-answer; err != nil {
		t.Errorf("what was sent during the pause: %v", err)
	}
}

func TestStartShowsTheLogOfAServerThatRefusesItsArguments(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skipf("needs redis-server: %s is left out", t.Name())
	}
	got := outcome(t, func(tb testing.TB) { redistest.Start(tb, "--no-such-option", "1") })
	got.mustFail(t, "did not start", "no-such-option")
}

// refused returns the error of dialing addr.
func refused(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}
