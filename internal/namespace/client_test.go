package namespace_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/namespace"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestEveryKindOfClientHasTheNamespace(t *testing.T) {
	t.Parallel()
	in := namespace.Namespace{Name: "n", Tasks: true}
	for kind, start := range map[string]func(t *testing.T) (given redis.UniversalClient, o redis.UniversalOptions){
		"standalone": func(t *testing.T) (redis.UniversalClient, redis.UniversalOptions) {
			s := redistest.Start(t)
			return s.Client(t), redis.UniversalOptions{Addrs: []string{s.Addr()}, MinIdleConns: 3}
		},
		"cluster": func(t *testing.T) (redis.UniversalClient, redis.UniversalOptions) {
			c := redistest.StartCluster(t, 3)
			return c.Client(t), redis.UniversalOptions{Addrs: c.Addrs(), IsClusterMode: true, MinIdleConns: 3}
		},
		"sentinel": func(t *testing.T) (redis.UniversalClient, redis.UniversalOptions) {
			s := redistest.StartSentinel(t)
			return s.Client(t), redis.UniversalOptions{Addrs: s.Addrs(), MasterName: s.MasterName(), MinIdleConns: 3}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			given, o := start(t)
			derived, made, err := namespace.Client(given, in)
			if err != nil || !made {
				t.Fatal(made, err)
			}
			opened, err := namespace.Open(&o, in)
			if err != nil {
				t.Fatal(err)
			}
			for how, client := range map[string]redis.UniversalClient{"derived": derived, "opened": opened} {
				usable(t, how, client, given)
				if got := namespace.Of(client); got != in {
					t.Errorf("%s: it has the namespace %+v", how, got)
				}
				outside := namespace.Outside(client)
				if got := outside.Get(t.Context(), "n:{q}:"+how).Val(); got != "{q}" {
					t.Errorf("%s: outside it is %q", how, got)
				}
				if err := outside.Close(); err != nil {
					t.Error(err)
				}
				if err := client.Close(); err != nil {
					t.Error(err)
				}
			}
			if got := namespace.Of(given); !got.IsZero() || namespace.Outside(given) != nil {
				t.Errorf("the client that was given has the namespace %+v", got)
			}
		})
	}
}

// usable uses a client in a namespace on any Redis.
func usable(t *testing.T, how string, client, given redis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	sub := client.Subscribe(ctx)
	defer sub.Close()
	if err := sub.Subscribe(ctx, "c"); err != nil {
		t.Fatal(how, err)
	}
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(how, err)
	}
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range []string{"a", "b", "c", "d"} {
			p.Set(ctx, key+how, "n:"+key, 0)
		}
		p.EvalSha(ctx, strings.Repeat("0", 40), []string{"a"})
		return nil
	})
	if !redis.HasErrorPrefix(err, "NOSCRIPT") {
		t.Errorf("%s: a script that is not known gives %v", how, err)
	}
	if err := redis.NewScript(`redis.call('SET', KEYS[1], '{q}') return redis.call('PUBLISH', 'c', KEYS[1])`).
		Run(ctx, client, []string{"{q}:" + how}).Err(); err != nil {
		t.Errorf("%s: a script gives %v", how, err)
	}
	if m, err := sub.ReceiveMessage(ctx); err != nil || m.Channel != "c" || m.Payload != "{q}:"+how {
		t.Errorf("%s: the message is %+v, %v", how, m, err)
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		if got := given.Get(ctx, "n:"+key+how).Val(); got != "n:"+key {
			t.Errorf("%s: %s has %q", how, key, got)
		}
		if n := given.Exists(ctx, key+how).Val(); n != 0 {
			t.Errorf("%s: %s is there without the prefix", how, key)
		}
	}
	if got := client.MGet(ctx, "{q}:"+how, "{q}:none").Val(); !slices.Equal(got, []any{"{q}", nil}) {
		t.Errorf("%s: it has %v", how, got)
	}
}

func TestOptionsKeepTheirMeaning(t *testing.T) {
	t.Parallel()
	const some = 7 * time.Millisecond
	for _, o := range []redis.Options{
		{MaxRetries: -1, ReadTimeout: -1, WriteTimeout: -2, MinRetryBackoff: -1, MaxRetryBackoff: -1},
		{MaxRetries: 7, ReadTimeout: some, WriteTimeout: some, MinRetryBackoff: some, MaxRetryBackoff: some},
	} {
		o.Addr = "192.0.2.1:1"
		given := redis.NewClient(&o)
		client, _, err := namespace.Client(given, namespace.Namespace{Name: "n"})
		if err != nil {
			t.Fatal(err)
		}
		a, b := given.Options(), client.(*redis.Client).Options() //nolint:forcetypeassert // as it was given
		if a.MaxRetries != b.MaxRetries || a.ReadTimeout != b.ReadTimeout || a.WriteTimeout != b.WriteTimeout ||
			a.MinRetryBackoff != b.MinRetryBackoff || a.MaxRetryBackoff != b.MaxRetryBackoff {
			t.Errorf("%+v became %+v", a, b)
		}
		if err := errors.Join(client.Close(), given.Close()); err != nil {
			t.Error(err)
		}
	}
	cached := redis.Options{ClientSideCacheConfig: &redis.ClientSideCacheConfig{}}
	if err := namespace.Wrap(&cached, namespace.Namespace{Name: "n"}); err == nil {
		t.Error("a cache is accepted")
	}
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	if _, _, err := namespace.Client(ring, namespace.Namespace{Name: "n"}); err == nil || !strings.Contains(err.Error(), "*redis.ClusterClient") {
		t.Errorf("a ring gives %v", err)
	}
}
