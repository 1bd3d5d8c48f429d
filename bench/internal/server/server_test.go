package server_test

import (
	"os/exec"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/internal/testing/process"
	"github.com/railtoken/railtoken/internal/testing/testserver"
)

func TestSentCountsNoCommandOfAScript(t *testing.T) {
	t.Parallel()
	s := start(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	script := redis.NewScript(`redis.call('SET', KEYS[1], 1) return redis.call('GET', KEYS[1])`)
	run := func() {
		if err := script.Run(t.Context(), client, []string{"k"}).Err(); err != nil {
			t.Error(err)
		}
		if err := client.Del(t.Context(), "k").Err(); err != nil {
			t.Error(err)
		}
	}

	sent, err := server.Learn(t.Context(), s, func() error {
		for range 10 {
			run()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	before := count(t, sent, s)
	for range 10 {
		run()
	}
	if got := count(t, sent, s) - before; got != 20 {
		t.Errorf("10 scripts and 10 commands count as %v", got)
	}
}

func TestADurableServerFindsItsDataAgain(t *testing.T) {
	t.Parallel()
	needRedis(t)
	s, err := server.StartDurable(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	if err := s.Probe().Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	before := s.PID()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Probe().Get(t.Context(), "k").Result(); err != nil || got != "v" || s.PID() == before {
		t.Errorf("process %d, later %d, has %q, %v", before, s.PID(), got, err)
	}
}

func TestSentinelsReplaceTheirMaster(t *testing.T) {
	t.Parallel()
	needRedis(t)
	testserver.LeaveToLong(t)
	s, err := server.StartSentinel(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: server.MasterName, SentinelAddrs: s.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Wait(t.Context(), 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.FailOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = process.Poll(t.Context(), nil, func() error { return client.Set(t.Context(), "l", "v", 0).Err() })
	if got := s.Replica.Probe().Exists(t.Context(), "k", "l").Val(); err != nil || got != 2 {
		t.Errorf("the new master has %d of two keys, %v", got, err)
	}
}

func needRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
}

func start(t *testing.T) *server.Server {
	t.Helper()
	needRedis(t)
	s, err := server.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

func count(t *testing.T, sent *server.Sent, s *server.Server) float64 {
	t.Helper()
	n, err := sent.Count(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
