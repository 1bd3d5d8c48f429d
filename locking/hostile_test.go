package locking_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/hostile"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// spoilings are some that were found to matter, and others of each kind.
func spoilings(f *testing.F) {
	f.Helper()
	for how := range byte(16) {
		f.Add([]byte{2, how, 1, 3, how, 2, 2, how, 3}, byte(3))
		f.Add([]byte{0, 0, 0, 4, how, 7, 0, 0, 0, 2, how, 6}, byte(1))
	}
}

// holds checks what a lease promises, whatever the servers have said: tokens of its keys that are positive.
func holds(t *testing.T, lease *locking.Lease, err error, keys []string) {
	t.Helper()
	if (lease == nil) == (err == nil) {
		t.Fatalf("lease %v, error %v", lease, err)
	}
	if lease == nil {
		return
	}
	for _, key := range keys {
		if token, err := lease.FenceOf(t.Context(), key); err == nil && token <= 0 {
			t.Errorf("the token of %q is %d", key, token)
		}
	}
}

// use takes, renews and gives back keys by a Locker whose servers spoil replies.
func use(t *testing.T, l locking.Locker, n byte) {
	t.Helper()
	keys := []string{"a", "b", "c"}[:1+n%3]
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		lease, err := l.Acquire(ctx, keys, locking.Options{TTL: time.Second})
		cancel()
		holds(t, lease, err, keys)
		if lease != nil {
			time.Sleep(time.Second) // virtual: it is renewed
			_ = lease.Release(t.Context())
		}
	}
}

// FuzzRepliesToASingle spoils the replies that a Single gets. None makes it panic or hang, and the keys are free in the end.
func FuzzRepliesToASingle(f *testing.F) {
	spoilings(f)
	f.Fuzz(func(t *testing.T, data []byte, n byte) {
		synctest.Test(t, func(t *testing.T) {
			m, _ := redistest.Virtual(t)
			client := redistest.Patient(t, m)
			replies := hostile.New(data)
			client.AddHook(replies)
			l := newSingle(t, client, locking.SingleOptions{AllowEviction: true})
			use(t, l, n)
			replies.Stop()
			free(t, l, m.FastForward)
		})
	})
}

// free checks that keys can be had once every TTL has ended.
func free(t *testing.T, l locking.Locker, forward func(time.Duration)) {
	t.Helper()
	time.Sleep(time.Minute) // virtual: what is repeated has ended
	forward(time.Minute)
	lease, err := l.Acquire(t.Context(), []string{"a", "b", "c"}, locking.Options{})
	if err != nil {
		t.Fatalf("after all replies are sound again: %v", err)
	}
	holds(t, lease, err, lease.Keys())
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
}

// FuzzRepliesToARedlock does the same with a Redlock, of one of whose three servers the replies are spoilt.
func FuzzRepliesToARedlock(f *testing.F) {
	spoilings(f)
	f.Fuzz(func(t *testing.T, data []byte, n byte) {
		synctest.Test(t, func(t *testing.T) {
			var all []func(time.Duration)
			var nodes []*redis.Options
			for range 3 {
				m, client := redistest.Virtual(t)
				nodes, all = append(nodes, client.Options()), append(all, m.FastForward)
			}
			l := newRedlock(t, nodes, unguarded)
			replies := hostile.New(data)
			l.AddHook(replies)
			use(t, l, n)
			replies.Stop()
			free(t, l, func(d time.Duration) {
				for _, forward := range all {
					forward(d)
				}
			})
		})
	})
}
