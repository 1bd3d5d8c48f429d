package usage_test

import (
	"os/exec"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/usage"
)

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
	meter := usage.Meter{Servers: []*server.Server{s}}
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
	each, all := after.Since(before, 20), after.Since(before, 1)
	if each.Micros <= 0 || each.Client <= 0 || each.Server <= 0 || each.Commands != 0 {
		t.Errorf("it cost %+v", each)
	}
	if got := each.Server * 20 / all.Server; got < 0.999 || got > 1.001 {
		t.Errorf("20 units cost %v, each %v", all.Server, each.Server)
	}
	full, keys, err := usage.Memory(t.Context(), s.Probe())
	if err != nil || keys != 20 || full-empty < 20*size {
		t.Errorf("%v keys take %v bytes, %v", keys, full-empty, err)
	}
}
