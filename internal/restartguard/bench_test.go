package restartguard_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/restartguard"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// BenchmarkStrict compares a lock script with the same one that looks first whether its server is the one that was
// vetted.
//
//	go test -run '^$' -bench Strict -count 6 ./internal/restartguard/
func BenchmarkStrict(b *testing.B) {
	for _, bench := range []struct {
		name, source string
	}{
		{"plain", plainLock},
		{"guarded", restartguard.Script(guardedLock)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s := redistest.Start(b)
			n := strict(b, anyAge)
			c := protected(b, s, n, nil)
			accepted(b, n, c)
			script := redis.NewScript(bench.source)
			do(b, c, "CONFIG", "RESETSTAT")
			for b.Loop() {
				if err := script.Run(b.Context(), c, []string{"key"}, "me", 1000, n.Identity()).Err(); err != nil {
					b.Fatal(err)
				}
			}
			stats := c.InfoMap(b.Context(), "commandstats").Val()["Commandstats"]["cmdstat_evalsha"]
			_, stats, _ = strings.Cut(stats, "usec_per_call=")
			stats, _, _ = strings.Cut(stats, ",")
			perCall, err := strconv.ParseFloat(stats, 64)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(perCall, "server-us/op")
		})
	}
}

// BenchmarkBlocked measures what a caller pays for asking about a good node.
func BenchmarkBlocked(b *testing.B) {
	n := newGuard(b, 1, restartguard.Options{MaxTTL: time.Second}).Node(0)
	for b.Loop() {
		if err := n.Blocked(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkVet measures the decision with the parsing of a server's answers, for every new connection.
func BenchmarkVet(b *testing.B) {
	now := time.Now()
	for b.Loop() {
		f, err := restartguard.ParseFacts(serverInfo, replicationInfo, memoryInfo)
		if err != nil {
			b.Fatal(err)
		}
		timed := f.Timed(time.Unix(0, 0), now, now)
		if _, refusal := restartguard.Vet(timed, limits, restartguard.Known{}, nil, now); refusal == nil {
			b.Fatal("a clock of 1970 is accepted")
		}
	}
}
