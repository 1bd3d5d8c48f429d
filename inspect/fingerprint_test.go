package inspect_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestAFingerprintChangesWithWhatLookShows(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	inspector := newInspector(t, inspect.Options{Tasks: client})
	prints := func() []string {
		t.Helper()
		all, err := inspector.Fingerprints(t.Context(), []string{"a", "b"}, 2)
		if err != nil || len(all) != 2 {
			t.Fatalf("%q, %v", all, err)
		}
		return all
	}
	before := prints()
	for what, change := range map[string]func() error{
		"a lock":            func() error { return client.Set(t.Context(), "railtoken:lock:{a}", "owner", 0).Err() },
		"a waiter":          func() error { return wait(t, client, "railtoken:waiters:{a}", "1") },
		"a second":          func() error { return wait(t, client, "railtoken:waiters:{a}", "2") },
		"a third":           func() error { return wait(t, client, "railtoken:waiters:{a}", "3") },
		"a fourth":          func() error { return wait(t, client, "railtoken:waiters:{a}", "4") },
		"one in a sequence": func() error { return wait(t, client, "railtoken:sequence:{a}", "5") },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		after := prints()
		if after[0] == before[0] || after[1] != before[1] {
			t.Errorf("after %s: %q, before %q", what, after, before)
		}
		before = after
	}
	client.Expire(t.Context(), "railtoken:lock:{a}", time.Minute)
	if after := prints(); after[0] != before[0] {
		t.Errorf("time alone has changed %q to %q", before, after)
	}
}

func wait(t *testing.T, client *redis.Client, set, id string) error {
	return client.ZAdd(t.Context(), set, redis.Z{Score: 1, Member: "7:default" + id}).Err()
}
