package measure_test

import (
	"math"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/server"
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
	meter := measure.Meter{Servers: []*server.Server{s}}
	empty, keys, err := measure.Memory(t.Context(), s.Probe())
	if err != nil || keys != 0 {
		t.Fatalf("%v keys, %v", keys, err)
	}
	const size = 1 << 20
	began := time.Now()
	each, err := meter.Measure(t.Context(), func() (int, error) {
		for i := range 20 { // enough to cost some processor time
			if err := client.Set(t.Context(), string(rune('a'+i)), make([]byte, size), 0).Err(); err != nil {
				return 0, err
			}
		}
		return 20, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if each[measure.Micros] <= 0 || each[measure.ClientMicros] <= 0 || each[measure.ServerMicros] <= 0 || !math.IsNaN(each[measure.Commands]) || each[measure.Bytes] < size {
		t.Errorf("it cost %+v", each)
	}
	if took := float64(time.Since(began).Microseconds()); each[measure.Micros] > took/20 {
		t.Errorf("each took %v µs, all together %v", each[measure.Micros], took)
	}
	none, err := meter.Measure(t.Context(), func() (int, error) { return 0, nil })
	if err != nil || !math.IsNaN(none[measure.Micros]) || !math.IsNaN(none[measure.ServerMicros]) {
		t.Errorf("nothing cost %+v, %v", none, err)
	}
	full, keys, err := measure.Memory(t.Context(), s.Probe())
	if err != nil || keys != 20 || full-empty < 20*size {
		t.Errorf("%v keys take %v bytes, %v", keys, full-empty, err)
	}
}
