package locking

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// batchCall is a call that the batch script can make.
type batchCall struct {
	name string // of the business key
	code byte
	args []any
}

func (c batchCall) keys() []string {
	lock := lockwire.LockKey(c.name)
	return []string{lock, lock + ":fence", lock + ":notify"}
}

// asBatch makes the calls by the batch script.
func asBatch(ctx context.Context, client *redis.Client, calls []batchCall) (replies []any, err error) {
	var keys []string
	var codes []byte
	var args []any
	for _, c := range calls {
		keys, codes, args = append(keys, c.keys()...), append(codes, c.code+byte(len(c.args))), append(args, c.args...)
	}
	reply, err := client.Eval(ctx, lockwire.Script(batchSource), keys, append([]any{string(codes)}, args...)...).Result()
	if err != nil {
		return nil, err
	}
	replies = reply.([]any)
	for i, r := range replies {
		if r == nil {
			replies[i] = redis.Nil
		}
	}
	if len(replies) > len(calls) {
		failures := replies[len(calls)].([]any)
		for i := 0; i < len(failures); i += 2 {
			replies[failures[i].(int64)-1] = errors.New(failures[i+1].(string))
		}
		replies = replies[:len(calls)]
	}
	return replies, nil
}

func TestABatchMakesItsCallsInOrder(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	client.Set(t.Context(), lockwire.LockKey("counted"), "a", time.Minute)
	client.Set(t.Context(), lockwire.LockKey("counted")+":fence", "no number", 0)
	client.RPush(t.Context(), lockwire.LockKey("listed"), "x")
	client.Set(t.Context(), lockwire.LockKey("told")+":notify", "1", time.Minute)
	const late = int64(1) << 52
	calls := []batchCall{
		{"x", 'a', []any{"a", 30_000, 60_000, late}},
		{"x", 'a', []any{"b", 30_000, 60_000, late, 90_000}},
		{"x", 'N', []any{"a", 90_000, 60_000, late + 5}},
		{"x", 'a', []any{"a", 30_000, 60_000, late, 0, 16}},
		{"x", 'A', []any{"b", late}},
		{"x", 'A', []any{"a", late + 5}},
		{"x", 'a', []any{"b", 30_000, 60_000, late, 0, 16}},
		{"listed", 'a', []any{"a", 30_000, 60_000}},
		{"counted", 'N', []any{"a", 30_000, 60_000, late}},
		{"told", 'A', []any{"a"}},
	}
	want := []string{
		fmt.Sprint(late), fmt.Sprintf("[0 1 a 30000 %d]", late), "0", fmt.Sprint(late + 5), "[1 1]", "[0 1]", fmt.Sprint(late + 21),
		"WRONGTYPE", "FOREIGN", "[0 1]",
	}
	replies, err := asBatch(t.Context(), client, calls)
	if err != nil || len(replies) != len(calls) {
		t.Fatalf("replies %v, error %v", replies, err)
	}
	for i, reply := range replies {
		got := fmt.Sprint(reply)
		if failure, ok := reply.(error); ok {
			got, _, _ = strings.Cut(failure.Error(), " ")
		}
		if list, ok := reply.([]any); ok && len(list) == 5 {
			list[3] = 30_000 // ms left
			got = fmt.Sprint(list)
		}
		if got != want[i] {
			t.Errorf("call %d, %c %v: %s, want %s", i, calls[i].code, calls[i].args, got, want[i])
		}
	}
}

func TestABatchReleasesWithoutMemory(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	take := func(key, owner string) batchCall { return batchCall{key, 'a', []any{owner, 30_000, 60_000}} }
	renew := func(key, owner string) batchCall { return batchCall{key, 'N', []any{owner, 90_000, 60_000, 1 << 52}} }
	leave := func(key, owner string) batchCall { return batchCall{key, 'A', []any{owner, 1 << 52}} }
	if _, err := asBatch(t.Context(), client, []batchCall{take("mine", "a"), take("kept", "a")}); err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	replies, err := asBatch(t.Context(), client, []batchCall{
		take("x", "a"), leave("x", "a"), take("mine", "a"), leave("mine", "a"), leave("mine", "b"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 2} {
		if refusal, ok := replies[i].(error); !ok || !rediswire.IsTransient(refusal.Error()) {
			t.Errorf("call %d has reply %v, want that there is no memory", i, replies[i])
		}
	}
	renewed, err := asBatch(t.Context(), client, []batchCall{take("y", "a"), renew("kept", "a")})
	if err != nil {
		t.Fatal(err)
	}
	if left := client.PTTL(t.Context(), lockwire.LockKey("kept")).Val(); renewed[1] != int64(0) || left < 60*time.Second {
		t.Errorf("reply %v to a renewal, after which the lock is kept for %v", renewed[1], left)
	}
	if replies[1] != int64(0) || replies[3] != int64(0) || replies[4] != int64(0) {
		t.Errorf("replies %v, want that all is released", replies)
	}
	if n := client.Exists(t.Context(), lockwire.LockKey("x"), lockwire.LockKey("mine")).Val(); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}

// Otherwise the client would not see that it has to look for another server.
func TestABatchOnAReplicaFailsWhole(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	if err := client.Do(t.Context(), "REPLICAOF", "192.0.2.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for _, calls := range [][]batchCall{
		{{"x", 'A', []any{"a"}}, {"x", 'a', []any{"a", 30_000, 60_000}}},
		{{"x", 'a', []any{"a", 30_000, 60_000}}},
	} {
		replies, err := asBatch(t.Context(), client, calls)
		if !redis.HasErrorPrefix(err, "READONLY") {
			t.Errorf("replies %v, error %v; want READONLY", replies, err)
		}
	}
}
