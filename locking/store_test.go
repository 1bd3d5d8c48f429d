package locking_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestLockersInOnePlaceHaveOneStore(t *testing.T) {
	t.Parallel()
	var servers []*redistest.Server
	for range 3 {
		servers = append(servers, redistest.Start(t))
	}
	single := func(s *redistest.Server) locking.Locker {
		l, err := locking.NewSingle(s.Client(t), locking.SingleOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	store := func(l locking.Locker) string {
		t.Helper()
		id, ok := locks.Store(t.Context(), l)
		if !ok {
			t.Error("the store is not known")
		}
		return id
	}
	first, again, other := store(single(servers[0])), store(single(servers[0])), store(single(servers[1]))
	if first != again || first == other {
		t.Errorf("one server has the stores %q and %q, another one has %q", first, again, other)
	}
	var redlocks []string
	for _, order := range [][]int{{0, 1, 2}, {2, 0, 1}} {
		var nodes []*redis.Options
		for _, i := range order {
			nodes = append(nodes, &redis.Options{Addr: servers[i].Addr()})
		}
		l, err := locking.NewRedlock(nodes, locking.RedlockOptions{Guard: locking.GuardOff})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		redlocks = append(redlocks, store(l))
	}
	if redlocks[0] != redlocks[1] || redlocks[0] == first {
		t.Errorf("a Redlock has the store %q, and with its nodes in another order %q", redlocks[0], redlocks[1])
	}
	named, err := locking.NewSingle(servers[0].Client(t), locking.SingleOptions{RedisKey: func(key string) string { return "app:" + key }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = named.Close() })
	if id := store(named); id == first || !strings.HasPrefix(id, first) {
		t.Errorf("with Redis keys of another program's, the store is %q", id)
	}
	servers[0].Stop()
	if id, ok := locks.Store(t.Context(), single(servers[0])); ok {
		t.Errorf("a server that is down has the store %q", id)
	}
}
