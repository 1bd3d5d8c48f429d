package usage_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/usage"
)

func TestCostsAreSharedByTheUnits(t *testing.T) {
	t.Parallel()
	c := usage.Cost{Units: 4, Took: 2 * time.Second, Commands: 10, Servers: []time.Duration{time.Millisecond, 3 * time.Millisecond}}
	if c.Rate() != 2 || c.PerUnit() != 2.5 || c.ServerTime() != 4*time.Millisecond || c.Micros(c.ServerTime()) != 1000 {
		t.Errorf("%v/s, %v commands, %v, %v us", c.Rate(), c.PerUnit(), c.ServerTime(), c.Micros(c.ServerTime()))
	}
}

func TestAMeterSeesWhatALoadCosts(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
	s, err := server.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	meter := usage.Meter{Servers: []*redis.Client{s.Probe()}}
	before, err := meter.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	empty, none, err := usage.Memory(t.Context(), s.Probe())
	if err != nil || none != 0 {
		t.Fatalf("%v keys, %v", none, err)
	}
	const size = 1 << 20
	for i := range 20 { // enough to cost some processor time
		if err := client.Set(t.Context(), string(rune('a'+i)), make([]byte, size), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	after, err := meter.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c := after.Since(before, 20); c.Took <= 0 || c.Client <= 0 || len(c.Servers) != 1 || c.Servers[0] <= 0 || c.Commands != 0 {
		t.Errorf("it cost %+v", c)
	}
	full, keys, err := usage.Memory(t.Context(), s.Probe())
	if err != nil || keys != 20 || full-empty < 20*size {
		t.Errorf("%v keys take %v bytes, %v", keys, full-empty, err)
	}
}
