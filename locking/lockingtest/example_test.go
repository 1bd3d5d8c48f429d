package lockingtest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/backend"
	"github.com/railtoken/railtoken/locking/lockingtest"
)

// memory is a backend in the memory of one process: the smallest one that keeps every promise.
type memory struct {
	mu     sync.Mutex
	locks  map[string]*lock // by key; some have expired
	tokens map[string]int64 // the last one reserved

	notify map[string]time.Time // until when somebody has subscribed to the releases of a key
}

// lock is the lock of one key.
type lock struct {
	grant *grant
	token int64 // the first of its block
	end   time.Time
}

// grant is one acquisition.
type grant struct {
	in     *memory
	keys   []string
	tokens []int64
	block  int
	label  string
	since  time.Time
}

// Acquire makes one attempt.
func (m *memory) Acquire(ctx context.Context, r backend.Request) (backend.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, key := range r.Keys {
		if l := m.locks[key]; l != nil && now.Before(l.end) {
			if until := now.Add(r.Notify); r.Notify > 0 && until.After(m.notify[key]) {
				m.notify[key] = until
			}
			return nil, &locking.HeldError{Key: key, Holder: locking.Holder{
				Label: l.grant.label, Since: l.grant.since, Fence: l.token, Remaining: l.end.Sub(now),
			}}
		}
	}
	g := &grant{in: m, keys: r.Keys, block: r.Block, label: r.Label, since: now}
	for _, key := range r.Keys {
		token := m.tokens[key] + 1
		m.tokens[key] += int64(r.Block)
		m.locks[key] = &lock{grant: g, token: token, end: now.Add(r.TTL)}
		g.tokens = append(g.tokens, token)
	}
	return g, nil
}

// Fence returns the first token of the block of a key.
func (g *grant) Fence(_ context.Context, i int) (int64, error) { return g.tokens[i], nil }

// Block returns how many tokens are reserved for each key.
func (g *grant) Block() int { return g.block }

// Renew makes the keys last for ttl from now, unless the lock of one of them is gone.
func (g *grant) Renew(_ context.Context, ttl time.Duration) error {
	g.in.mu.Lock()
	defer g.in.mu.Unlock()
	now := time.Now()
	for _, key := range g.keys {
		if !g.owns(key) || !now.Before(g.in.locks[key].end) {
			return g.lost(key)
		}
	}
	g.extend(ttl)
	return nil
}

// Release deletes the locks that are still this grant's.
func (g *grant) Release(context.Context) (notify bool, err error) {
	g.in.mu.Lock()
	defer g.in.mu.Unlock()
	for i, key := range g.keys {
		if g.in.tokens[key] != g.tokens[i]+int64(g.block)-1 {
			err = g.lost(key) // there was another grant
		}
		if g.owns(key) {
			delete(g.in.locks, key)
		}
		notify = notify || g.in.notify[key].After(time.Now())
	}
	return notify, err
}

func (g *grant) owns(key string) bool { return g.in.locks[key] != nil && g.in.locks[key].grant == g }

func (g *grant) extend(ttl time.Duration) {
	for _, key := range g.keys {
		g.in.locks[key].end = time.Now().Add(ttl)
	}
}

func (g *grant) lost(key string) error {
	return &locking.LostError{Keys: []string{key}, Reason: locking.LossTaken}
}

func newMemory() *memory {
	return &memory{locks: map[string]*lock{}, tokens: map[string]int64{}, notify: map[string]time.Time{}}
}

// lose ends the TTL of a lock early.
func (m *memory) lose(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.locks[key].end = time.Now()
}

// A backend's own test calls Run. With synctest.Test the suite takes no time, if the backend lives in the process.
func TestMemoryConforms(t *testing.T) {
	t.Parallel()
	var stores sync.Map // one for each test of the suite
	storeOf := func(t *testing.T) *memory {
		m, _ := stores.LoadOrStore(t, newMemory())
		return m.(*memory)
	}
	lockingtest.Run(t, lockingtest.Harness{
		Run:  synctest.Test,
		New:  func(t *testing.T) locking.Locker { return locking.New(storeOf(t)) },
		Lose: func(t *testing.T, key string) { storeOf(t).lose(key) },
	})
}

// A backend takes keys that are sorted and without duplicates; locking.New does the rest.
func ExampleHarness() {
	locker := locking.New(newMemory())
	h := lockingtest.Harness{New: func(*testing.T) locking.Locker { return locker }}

	ctx := context.Background()
	lease, err := h.New(nil).Acquire(ctx, []string{"b", "a", "b"}, locking.Options{Label: "me"})
	if err != nil {
		panic(err)
	}
	defer lease.Release(ctx)
	fmt.Println(lease.Keys())
	// Output: [a b]
}

// A refusal names the holder.
func ExampleRun() {
	locker := locking.New(newMemory())
	ctx := context.Background()
	lease, err := locker.Acquire(ctx, []string{"order:1042"}, locking.Options{Label: "host-7/41/order:audit"})
	if err != nil {
		panic(err)
	}
	defer lease.Release(ctx)

	_, err = locker.Acquire(ctx, []string{"order:1042"}, locking.Options{})
	if held, ok := errors.AsType[*locking.HeldError](err); ok {
		fmt.Println(held.Key, "is held by", held.Holder.Label, "with token", held.Holder.Fence)
	}
	// Output: order:1042 is held by host-7/41/order:audit with token 1
}
