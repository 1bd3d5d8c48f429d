package lockwire_test

import (
	"crypto/sha1"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// nameOf returns the name by which a script knows an owner.
func nameOf(owner string) string {
	sum := sha1.Sum([]byte(owner))
	return hex.EncodeToString(sum[:])[:16]
}

// depose takes the lock of an owner with a mark away, for another one.
func depose(t *testing.T, client *redis.Client, owner, expected, mark string) (any, error) {
	t.Helper()
	keys := []string{"{k}lock", "{k}fence", "{k}subscription", "{k}record"}
	return client.Eval(t.Context(), lockwire.Depose, keys, owner, 30_000, 600_000, 10, nameOf(expected), mark, " it hangs", 60_000, 120,
		"{k}channel").Result()
}

func TestADeposedOwnerIsMarkedAndRecorded(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	get := func(key string) string { return client.Get(t.Context(), key).Val() }
	mark := strings.Repeat("m", 16)
	client.Set(t.Context(), "{k}lock", "before", time.Minute)
	client.Set(t.Context(), "{k}fence", 41, time.Hour) // the holders may keep it for so long
	told := client.Subscribe(t.Context(), "{k}channel")
	t.Cleanup(func() { _ = told.Close() })
	if _, err := told.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if top, err := depose(t, client, "after", "before", mark); top != int64(42) || err != nil {
		t.Fatalf("%v, %v; want the next token", top, err)
	}
	if message, err := told.ReceiveMessage(t.Context()); err != nil || message.Payload != nameOf("before") {
		t.Errorf("the channel says %v, %v", message, err)
	}
	if fence := get("{k}fence"); !regexp.MustCompile(`^42 ` + mark + `@\d+$`).MatchString(fence) {
		t.Errorf("the counter is %q", fence)
	}
	if get("{k}lock") != "after" || get("{k}record") != nameOf("after")+" it hangs" || get("{k}subscription") != "" {
		t.Errorf("lock %q, record %q, subscription %q", get("{k}lock"), get("{k}record"), get("{k}subscription"))
	}
	if top, err := depose(t, client, "after", "before", mark); top != int64(42) || err != nil {
		t.Errorf("repeated: %v, %v; want the same token", top, err)
	}
	if ttl := client.PTTL(t.Context(), "{k}fence").Val(); ttl < 59*time.Minute {
		t.Errorf("the counter stays for %v, want the hour for which it may be needed", ttl)
	}
	if top, err := depose(t, client, "again", "before", mark); top != int64(43) || err != nil {
		t.Errorf("from the owner that has it by a Depose of the same: %v, %v; want the next token", top, err)
	}
	client.Set(t.Context(), "{k}lock", "stranger", time.Minute)
	reply, err := depose(t, client, "late", "before", mark)
	if list, _ := reply.([]any); err != nil || len(list) != 5 || list[2] != "stranger" || get("{k}record") != nameOf("again")+" it hangs" {
		t.Errorf("another holder: %v, %v, record %q", reply, err, get("{k}record"))
	}
}

func TestAStrangersCounterKeepsTheLockWithItsOwner(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	client.Set(t.Context(), "{k}lock", "before", time.Minute)
	client.Set(t.Context(), "{k}fence", "not a number", 0)
	if top, err := depose(t, client, "after", "before", "m"); err == nil || !strings.HasPrefix(err.Error(), "FOREIGN ") {
		t.Errorf("%v, %v; want a refusal", top, err)
	}
	if lock, fence := client.Get(t.Context(), "{k}lock").Val(), client.Get(t.Context(), "{k}fence").Val(); lock != "before" || fence != "not a number" {
		t.Errorf("lock %q, counter %q", lock, fence)
	}
}
