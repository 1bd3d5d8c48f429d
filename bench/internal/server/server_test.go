package server_test

import (
	"os/exec"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/server"
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

func start(t *testing.T) *server.Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
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
