package locking_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// spoilers write values of other programs to the Redis keys of a lock.
var spoilers = map[string]func(t *testing.T, c *redis.Client, key string){
	"a lock of another type": func(t *testing.T, c *redis.Client, key string) {
		replaced(t, c, lockOf(key))
	},
	"a counter of another type": func(t *testing.T, c *redis.Client, key string) {
		replaced(t, c, lockOf(key)+":fence")
	},
	"a counter that is no number": func(t *testing.T, c *redis.Client, key string) {
		do(t, c, "SET", lockOf(key)+":fence", "theirs")
	},
}

// replaced makes a Redis key a list, in one step: a node of a Redlock may answer late.
func replaced(t *testing.T, c *redis.Client, name string) {
	t.Helper()
	if _, err := c.TxPipelined(t.Context(), func(tx redis.Pipeliner) error {
		tx.Del(t.Context(), name)
		tx.RPush(t.Context(), name, "theirs")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// foreignAtOnce checks that an error says what to do, and came at once.
func foreignAtOnce(t *testing.T, what string, began time.Time, err error) {
	t.Helper()
	if took := time.Since(began); !errors.Is(err, locking.ErrForeign) || errors.Is(err, locking.ErrUnavailable) ||
		!strings.Contains(err.Error(), "delete it") || took > 900*time.Millisecond {
		t.Errorf("%s ends after %v with %v", what, took, err)
	}
}

func TestValuesOfOtherProgramsAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	one := redistest.Start(t)
	for kind, l := range map[string]locking.Locker{
		"single": newSingle(t, one.Client(t), locking.SingleOptions{}), "redlock": newRedlock(t, nodes, unguarded),
	} {
		clients := []*redis.Client{one.Client(t)}
		if kind == "redlock" {
			clients = admins(t, servers)
		}
		for name, spoil := range spoilers {
			t.Run(kind+", "+name, func(t *testing.T) {
				prefix := kind + ":" + strings.ReplaceAll(name, " ", "-")
				key := prefix + ":c"
				all := []string{prefix + ":a", key, prefix + ":z"}
				spoilAll := func() {
					for _, c := range clients {
						spoil(t, c, key)
					}
				}
				spoilAll()
				for _, keys := range [][]string{{key}, all, {key}} {
					began := time.Now()
					_, err := l.Acquire(t.Context(), keys, locking.Options{})
					foreignAtOnce(t, "an attempt", began, err)
				}
				for _, c := range clients {
					for _, free := range []string{all[0], all[2]} {
						if c.Exists(t.Context(), lockOf(free)).Val() != 0 {
							t.Errorf("%s is locked", free)
						}
					}
					if strings.HasPrefix(name, "a counter") && c.Exists(t.Context(), lockOf(key)).Val() != 0 {
						t.Error("the key is locked")
					}
					if kept := c.Get(t.Context(), lockOf(key)+":fence").Val(); strings.HasSuffix(name, "no number") && kept != "theirs" {
						t.Errorf("the value became %q", kept)
					}
					do(t, c, "DEL", lockOf(key), lockOf(key)+":fence")
				}
				lease, err := l.Acquire(t.Context(), all, locking.Options{})
				if err != nil {
					t.Fatal(err)
				}
				await(t, "every server has the lock", func() bool {
					return !slices.ContainsFunc(clients, func(c *redis.Client) bool { return !exists(t, c, key) })
				})
				spoilAll()
				began := time.Now()
				foreignAtOnce(t, "a renewal", began, lease.Renew(t.Context()))
				began = time.Now()
				_, err = locks.TakeOver(t.Context(), l, lockaccess.Request{
					Key: key, Expect: "0123456789abcdef", By: "ann", Why: "why", TTL: time.Minute,
				})
				foreignAtOnce(t, "a deposition", began, err)
				began = time.Now()
				_ = lease.Release(t.Context())
				if took := time.Since(began); took > 900*time.Millisecond {
					t.Errorf("the release took %v", took)
				}
				nowhere(t, clients, all[0])
				nowhere(t, clients, all[2])
				if strings.HasPrefix(name, "a counter") {
					nowhere(t, clients, key)
				}
			})
		}
	}
}
