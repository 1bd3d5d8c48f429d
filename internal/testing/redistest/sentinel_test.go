package redistest_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

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
