package lockwire_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// acquire calls the script for the keys of one lock.
func acquire(t *testing.T, client *redis.Client, owner string, args ...any) (any, error) {
	t.Helper()
	keys := []string{"{k}lock", "{k}fence", "{k}subscription"}
	return client.Eval(t.Context(), lockwire.Acquire, keys, append([]any{owner, 30_000, 600_000}, args...)...).Result()
}

func TestAnUnusedCounterStartsWithTheProposal(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	if top, err := acquire(t, client, "first", 1); top != int64(1) || err != nil {
		t.Errorf("%v, %v; want the proposal", top, err)
	}
	client.Del(t.Context(), "{k}lock")
	if top, err := acquire(t, client, "second", 1); top != int64(2) || err != nil {
		t.Errorf("%v, %v; want one more", top, err)
	}
}

func TestAStrangersCounterStaysAndKeepsTheLockFree(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	client.Set(t.Context(), "{k}fence", "not a number", 0)
	if top, err := acquire(t, client, "first", 1); err == nil || !strings.HasPrefix(err.Error(), "FOREIGN ") {
		t.Errorf("%v, %v; want a refusal", top, err)
	}
	if value := client.Get(t.Context(), "{k}fence").Val(); value != "not a number" {
		t.Errorf("the counter is %q", value)
	}
	if n := client.Exists(t.Context(), "{k}lock").Val(); n != 0 {
		t.Error("the lock is taken")
	}
}
