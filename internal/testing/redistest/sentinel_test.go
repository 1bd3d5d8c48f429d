package redistest_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestAFailoverLosesNoWriteThatWasAnswered(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	client := s.Client(t)
	ctx := t.Context()
	// A writer that goes on over both failovers. Each answer is the counter, so a lost write would show as one that comes twice.
	begun, stop, wrote := make(chan struct{}), make(chan struct{}), make(chan []int64)
	go func() {
		var answers []int64
		for {
			select {
			case <-stop:
				wrote <- answers
				return
			default:
			}
			if n, err := client.Incr(ctx, "counter").Result(); err == nil {
				if answers = append(answers, n); n == 1 {
					close(begun)
				}
			}
		}
	}()
	<-begun
	before := s.Master()
	s.Failover(t)
	if s.Master() == before || s.Replica() != before {
		t.Errorf("the master is %s, the replica %s; before, the master was %s", s.Master().Addr(), s.Replica().Addr(), before.Addr())
	}
	s.Failover(t) // and back
	if s.Master() != before {
		t.Error("the second failover did not lead back")
	}
	close(stop)
	answers := <-wrote
	if len(slices.Compact(slices.Clone(answers))) != len(answers) || !slices.IsSorted(answers) {
		t.Errorf("the answers of %d writes are not in order, or come twice", len(answers))
	}
	if n, err := s.Master().Client(t).Get(ctx, "counter").Int64(); err != nil || n < answers[len(answers)-1] {
		t.Errorf("the master has %d, %v; the last answer was %d", n, err, answers[len(answers)-1])
	}
}

func TestAFailoverMakesThePromotedServerTakeWritesAndTheOldOneRefuseThem(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	ctx := t.Context()
	if err := s.Client(t).Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Failover(t)
	if got, err := s.Master().Client(t).Get(ctx, "k").Result(); got != "v" {
		t.Errorf("the new master has %q, %v", got, err)
	}
	if err := s.Master().Client(t).Set(ctx, "k", "w", 0).Err(); err != nil {
		t.Errorf("the new master: %v", err)
	}
	old := s.Replica().Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	if err := old.Set(ctx, "k", "x", 0).Err(); !redis.HasErrorPrefix(err, "READONLY") {
		t.Errorf("the old master says %v, want READONLY", err)
	}
}

func TestEverySentinelNamesTheMaster(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	if n := len(slices.Compact(slices.Sorted(slices.Values(s.Addrs())))); n != 3 {
		t.Fatalf("%d sentinels at different addresses, want 3", n)
	}
	for range 2 {
		for _, addr := range s.Addrs() {
			client := redis.NewSentinelClient(&redis.Options{Addr: addr})
			at, err := client.GetMasterAddrByName(t.Context(), s.MasterName()).Result()
			if err != nil || len(at) != 2 || at[0]+":"+at[1] != s.Master().Addr() {
				t.Errorf("sentinel %s names %v, %v; the master is %s", addr, at, err, s.Master().Addr())
			}
			_ = client.Close()
		}
		s.Failover(t)
	}
}

func TestWithoutRedisServerATestWithSentinelsIsSkippedByName(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, required := range []bool{false, true} {
		t.Run(strconv.FormatBool(required), func(t *testing.T) {
			t.Setenv("REDISTEST_REQUIRE", map[bool]string{true: "1"}[required])
			got := outcome(t, func(tb testing.TB) { redistest.StartSentinel(tb) })
			if required {
				got.mustFail(t, "needs redis-server: ", t.Name(), "make test")
			} else {
				got.mustSkip(t, "needs redis-server: ", t.Name(), "make test")
			}
		})
	}
}
