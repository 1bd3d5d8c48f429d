package fence_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func guarded(client redis.UniversalClient) fence.Redis {
	return fence.Redis{Eval: func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
		return client.Eval(ctx, script, keys, args...).Result()
	}}
}

func TestScriptsRunOnlyUnderTheLargestToken(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	guard := guarded(client)
	set := func(n int64, value string) error {
		reply, err := guard.Run(t.Context(), fence.Token{Key: "it's", N: n}, `return redis.call("SET", KEYS[#KEYS], ARGV[#ARGV])`, []string{"stock"}, value)
		if err == nil && reply != "OK" {
			t.Errorf("the script returns %v", reply)
		}
		return err
	}
	if err := errors.Join(guard.Claim(t.Context(), fence.Token{Key: "it's", N: 10}, "stock"), set(10, "a"), set(10, "b"), set(fence.MaxToken, "c")); err != nil {
		t.Fatal(err)
	}
	err := set(fence.MaxToken-1, "late")
	if fenced, ok := errors.AsType[*fence.FencedError](err); !ok || fenced.Seen != fence.MaxToken {
		t.Errorf("an earlier token: %v", err)
	}
	if err := guard.Claim(t.Context(), fence.Token{Key: "it's", N: 11}, "stock"); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("claim of an earlier token: %v", err)
	}
	if got := client.Get(t.Context(), "stock").Val(); got != "c" {
		t.Errorf("the data is %q", got)
	}
	if err := guard.Claim(t.Context(), fence.Token{Key: "other", N: 1}, "stock"); err != nil {
		t.Errorf("another key: %v", err)
	}
	if _, err := guard.Run(t.Context(), fence.Token{Key: "it's", N: fence.MaxToken}, "return redis.call('LPUSH', KEYS[1], 1)", []string{"stock"}); err == nil ||
		errors.Is(err, fence.ErrFenced) {
		t.Errorf("a script that fails: %v", err)
	}
}

func TestTokenIsInTheSlotOfItsData(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	guard := guarded(cluster.Client(t))
	for _, data := range []string{"stock", "a{b}c", "{x", "日本"} {
		if err := guard.Claim(t.Context(), fence.Token{Key: "order:{1}", N: 7}, data); err != nil {
			t.Errorf("%q: %v", data, err)
		}
		if err := guard.Claim(t.Context(), fence.Token{Key: "order:{1}", N: 6}, data); !errors.Is(err, fence.ErrFenced) {
			t.Errorf("%q, an earlier token: %v", data, err)
		}
	}
}

func TestInvalidScriptsAreNotSent(t *testing.T) {
	t.Parallel()
	guard := fence.Redis{Eval: func(context.Context, string, []string, ...any) (any, error) { t.Error("sent"); return 1, nil }}
	for name, err := range map[string]error{
		"no key":       guard.Claim(t.Context(), fence.Token{N: 1}, "data"),
		"2^53":         guard.Claim(t.Context(), fence.Token{Key: "k", N: 1 << 53}, "data"),
		"no data":      guard.Claim(t.Context(), fence.Token{Key: "k", N: 1}, ""),
		"no Eval":      fence.Redis{}.Claim(t.Context(), fence.Token{Key: "k", N: 1}, "data"),
		"no tag":       guard.Claim(t.Context(), fence.Token{Key: "k", N: 1}, "{}y"),
		"another slot": guard.Claim(t.Context(), fence.Token{Key: "k", N: 1}, "a}b"),
	} {
		if !errors.Is(err, fence.ErrInvalid) || !strings.HasPrefix(err.Error(), "fence: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
