package locking_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// foreign takes locks as other programs do: SET key random NX PX ttl, and compare-and-delete.
type foreign struct {
	t      *testing.T
	client *redis.Client
}

var compareAndDelete = redis.NewScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end`)

func (f foreign) lock(key, value string, ttl time.Duration) bool {
	f.t.Helper()
	err := f.client.SetArgs(f.t.Context(), key, value, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		f.t.Fatal(err)
	}
	return err == nil
}

func (f foreign) unlock(key, value string) bool {
	f.t.Helper()
	n, err := compareAndDelete.Run(f.t.Context(), f.client, []string{key}, value).Int()
	if err != nil {
		f.t.Fatal(err)
	}
	return n == 1
}

func TestForeignLocksAndOursExcludeEachOther(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for pattern, keyName := range map[string]func(string) string{
		"lock:%s":           func(key string) string { return "lock:" + key },
		"lock:{%s}":         func(key string) string { return "lock:{" + key + "}" },
		"railtoken:lock{%s": nil,
	} {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			key := fmt.Sprintf("order:%d", len(pattern))
			name := fmt.Sprintf(pattern, key)
			if keyName == nil {
				name = "railtoken:lock:{" + key + "}"
			}
			us := newSingle(t, server.Client(t), locking.SingleOptions{RedisKey: keyName})
			them := foreign{t, server.Client(t)}

			if !them.lock(name, "random", 30*time.Second) {
				t.Fatal("the other program could not take a free lock")
			}
			holder := refused(t, us, key)
			if holder.Label != "" || !holder.Since.IsZero() || holder.Remaining <= 0 ||
				holder.Remaining > 30*time.Second {
				t.Errorf("holder %+v, want another program with at most 30s left", holder)
			}
			if !them.unlock(name, "random") {
				t.Error("the other program could not release its own lock")
			}

			lease := acquire(t, us, locking.Options{}, key)
			if them.lock(name, "random", 30*time.Second) {
				t.Error("the other program took a lock that we hold")
			}
			if them.unlock(name, "random") {
				t.Error("the other program released our lock")
			}
			refused(t, us, key)
			release(t, lease)
			if !them.lock(name, "random", 30*time.Second) {
				t.Error("the other program could not take the lock that we released")
			}
			if !them.unlock(name, "random") {
				t.Error("the other program could not release its own lock")
			}
			release(t, acquire(t, us, locking.Options{}, key))
		})
	}
}

func TestARenewalExtendsNoForeignLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	l, name := newSingle(t, client, locking.SingleOptions{}), "railtoken:lock:{order:1}"
	lease := acquire(t, l, locking.Options{}, "order:1")
	if err := client.Del(t.Context(), name).Err(); err != nil { // by an operator
		t.Fatal(err)
	}
	if !(foreign{t, client}).lock(name, "random", 5*time.Second) {
		t.Fatal("the other program could not take a free lock")
	}
	if err := lease.Renew(t.Context()); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: %v, want ErrLost", err)
	}
	if err := lease.Release(t.Context()); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
	if left := client.PTTL(t.Context(), name).Val(); left <= 0 || left > 5*time.Second {
		t.Errorf("the other program's lock lasts for %v, want what is left of its 5s", left)
	}
}

func TestAForeignLockMayHaveNoEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t), locking.SingleOptions{})
	if !(foreign{t, server.Client(t)}).lock("railtoken:lock:{order:1}", "by hand", 0) {
		t.Fatal("the other program could not take a free lock")
	}
	_, err := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
	held, _ := errors.AsType[*locking.HeldError](err)
	if held == nil || held.Holder.Remaining >= 0 {
		t.Fatalf("error %v, want a HeldError with a negative time", err)
	}
	if want := `locking: key "order:1" is held by another program, with no end`; held.Error() != want {
		t.Errorf("error %q, want %q", held, want)
	}
}

func TestAForeignLabelIsCleanInTheRefusal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t), locking.SingleOptions{})
	value := strings.Repeat("A", 27) + ".zz.first line\nsecond line" + strings.Repeat("!", 1000)
	if !(foreign{t, server.Client(t)}).lock("railtoken:lock:{order:1}", value, time.Minute) {
		t.Fatal("the other program could not take a free lock")
	}
	if label := refused(t, l, "order:1").Label; strings.Contains(label, "\n") || len(label) > 200 {
		t.Errorf("the refusal tells a label that no holder can have: %q", label)
	}
}

func TestAKeyOfAnotherTypeIsAClearError(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	l := newSingle(t, client, locking.SingleOptions{})
	for name, kind := range map[string]string{
		"the lock":          "railtoken:lock:{%s}",
		"the fence counter": "railtoken:lock:{%s}:fence",
	} {
		free, spoilt := "a "+name, "b "+name // in this order
		if err := client.RPush(t.Context(), fmt.Sprintf(kind, rediswire.Encode(spoilt)), "a list").Err(); err != nil {
			t.Fatal(err)
		}
		lease, err := l.Acquire(t.Context(), []string{free, spoilt}, locking.Options{})
		if lease != nil {
			t.Errorf("%s is a list: acquired", name)
		}
		isClear(t, err, "acquire", fmt.Sprintf("%q", spoilt), "WRONGTYPE")
		release(t, acquire(t, l, locking.Options{}, free))
		do(t, client, "DEL", fmt.Sprintf(kind, rediswire.Encode(spoilt))) // Close would wait for the release
	}
}

func TestARedisKeyNeedsAHashTag(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, bad := range []string{"lock}", "{lock", "{}lock", "lo}ck{", "}{"} {
		l := newSingle(t, server.Client(t),
			locking.SingleOptions{RedisKey: func(key string) string { return key + bad }})
		lease, err := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
		if lease != nil {
			t.Errorf("acquired by the name %q", "order:1"+bad)
		}
		isClear(t, err, "RedisKey", fmt.Sprintf("%q", "order:1"+bad), `"order:1"`, "hash tag")
	}
}
