package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

var (
	redlock3 = backend{"redlock-3", 3, openRedlock}
	redlock5 = backend{"redlock-5", 5, openRedlock}
)

func init() {
	backends = append(backends, redlock3, redlock5)
	for _, b := range backends {
		backends = append(backends, gated(b))
	}
}

func openRedlock(t *testing.T, servers []*redistest.Server, keyName func(string) string) locking.Locker {
	var nodes []*redis.Options
	for _, s := range servers {
		nodes = append(nodes, &redis.Options{
			Addr:                     s.Addr(),
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
	}
	// The servers have just been started, which the guard takes for a crash, and share a machine with every other test.
	opts := locking.RedlockOptions{RedisKey: keyName, Guard: locking.GuardOff, NodeTimeout: 300 * time.Millisecond}
	l, err := locking.NewRedlock(nodes, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// gated returns a backend behind a gate.
func gated(b backend) backend {
	return backend{b.name + "-gate", b.nodes, func(t *testing.T, servers []*redistest.Server, keyName func(string) string) locking.Locker {
		return locking.NewGate(b.open(t, servers, keyName), locking.GateOptions{})
	}}
}

func TestWeAndOthersExcludeEachOtherWhenAMinorityOfTheNodesIsDead(t *testing.T) {
	t.Parallel()
	for _, p := range programs {
		if p.oneNode {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			servers := start(t, redlock5.nodes)
			servers[0].Kill()
			servers[3].Kill()
			meet(t, redlock5, p, servers)
		})
	}
}

// redislock knows a single node, so it counts for us where it is: on a majority of the nodes it excludes us, on a minority it
// does not, and then neither touches the other's.
func TestRedislockCountsForTheNodesThatItIsOn(t *testing.T) {
	t.Parallel()
	servers := start(t, redlock5.nodes)
	us := redlock5.open(t, servers, lockName)
	them := make([]foreign, len(servers))
	for i := range servers {
		them[i] = openRedislock(t, servers[i:i+1])
	}
	ctx, key := t.Context(), "order:1"
	take := func(users []foreign) (locks []foreignLock) {
		t.Helper()
		for i, user := range users {
			lock, err := user.lock(ctx, lockName(key), 20*time.Second)
			if err != nil {
				t.Fatalf("redislock %d locks a free node: %v", i, err)
			}
			locks = append(locks, lock)
		}
		return locks
	}
	give := func(locks []foreignLock) {
		t.Helper()
		for i, lock := range locks {
			if ok, err := lock.unlock(ctx); !ok || err != nil {
				t.Errorf("redislock %d unlocks: %v, %v; want its own lock to be there", i, ok, err)
			}
		}
	}

	majority := take(them[:3])
	if h := refused(t, us, key).Holder; h.Label != "" || h.Remaining <= 0 || h.Remaining > 20*time.Second {
		t.Errorf("the refusal tells of %+v, want another program", h)
	}
	give(take(them[3:])) // nothing of our attempt is left there
	give(majority)

	minority := take(them[:2])
	lease := acquire(t, us, key, locking.Options{})
	for i, user := range them[2:] {
		if _, err := user.lock(ctx, lockName(key), 20*time.Second); !errors.Is(err, errTaken) {
			t.Errorf("redislock %d locks a node of ours: %v, want a refusal", 2+i, err)
		}
	}
	if err := lease.Renew(ctx); err != nil {
		t.Errorf("renew beside a minority of theirs: %v", err)
	}
	if err := lease.Release(context.Background()); err != nil {
		t.Errorf("release beside a minority of theirs: %v", err)
	}
	give(take(them[2:]))
	give(minority)
}
