package redistest_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestTheReplicaTakesThePlaceOfALostMaster(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Hurry(ctx, time.Second, time.Second); err != nil {
		t.Fatal(err)
	}
	client := s.Client(t)
	if err := client.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := client.Wait(ctx, 1, 10*time.Second).Result(); n != 1 { // the replica has it
		t.Fatal(n, err)
	}
	for name, fail := range map[string]func() error{
		"killed":   func() error { return s.Crash(ctx) },
		"stopped":  func() error { return s.Stall(ctx, 0) },
		"replaced": func() error { return s.Switch(ctx, 0) },
	} {
		before := s.Replica()
		if err := fail(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.Master() != before {
			t.Errorf("%s: the replica is not the master", name)
		}
		s.Each(func(c *redis.Client) {
			if got, err := c.Get(ctx, "k").Result(); got != "v" {
				t.Errorf("%s: a server has %q, %v", name, got, err)
			}
		})
	}
}
