package lockwire_test

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestARenewalRaisesItsCounterOrNone(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	keys := []string{"{k}a", "{k}a:fence", "{k}a:subscription", "{k}b", "{k}b:fence", "{k}b:subscription"}
	renew := func(tokens ...any) any {
		reply, err := client.Eval(t.Context(), lockwire.Renew, keys, append([]any{"owner", 30_000, 600_000}, tokens...)...).Result()
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	for _, key := range []string{"{k}a", "{k}b"} {
		client.Set(t.Context(), key, "owner", time.Second)
		client.Set(t.Context(), key+":fence", 5, time.Second)
	}
	if reply := renew(5, 4); reply != int64(2) {
		t.Errorf("%v, want the position of the key with a later token", reply)
	}
	if ttl := client.PTTL(t.Context(), "{k}a").Val(); ttl > time.Second {
		t.Errorf("a renewal that has failed has extended a lock to %v", ttl)
	}
	if reply := renew(5, 7); reply != int64(0) {
		t.Errorf("%v, want none lost", reply)
	}
	for key, want := range map[string]string{"{k}a:fence": "5", "{k}b:fence": "7"} {
		if got, ttl := client.Get(t.Context(), key).Val(), client.PTTL(t.Context(), key).Val(); got != want || ttl < 500*time.Second {
			t.Errorf("%s is %q for %v, want %s", key, got, ttl, want)
		}
	}
	client.Set(t.Context(), "{k}b", "another", time.Minute)
	if reply := renew(5, 7); reply != int64(2) {
		t.Errorf("%v, want the position of the key that another owner has", reply)
	}
	if n := client.Exists(t.Context(), "{k}a:subscription", "{k}b:subscription").Val(); n != 0 {
		t.Errorf("%d subscriptions have come of it", n)
	}
}

func TestAnAbandonedCallSaysWhetherItNotifies(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	keys := []string{"{k}lock", "{k}fence", "{k}subscription"}
	abandon := func() any {
		client.Set(t.Context(), keys[0], "owner", time.Minute)
		reply, err := client.Eval(t.Context(), lockwire.Abandon, keys, "owner", 120, 600_000, 0, 0).Result()
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	if reply := abandon(); reply != int64(0) {
		t.Errorf("without a subscription: %v", reply)
	}
	client.Set(t.Context(), keys[2], 1, time.Minute)
	if list, _ := abandon().([]any); len(list) != 2 || list[0] != int64(0) || list[1] != int64(1) {
		t.Errorf("with a subscription: %v", list)
	}
}
