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
	owners map[string]*grant // by key
	tokens map[string]int64
}

// grant is one acquisition.
type grant struct {
	in     *memory
	keys   []string
	tokens []int64
	label  string
	since  time.Time
	end    time.Time
	notify bool
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
		if held := m.owners[key]; held != nil && now.Before(held.end) {
			held.notify = held.notify || r.Notify > 0
			return nil, &locking.HeldError{Key: key, Holder: locking.Holder{
				Label: held.label, Since: held.since, Fence: m.tokens[key], Remaining: held.end.Sub(now),
			}}
		}
	}
	g := &grant{in: m, keys: r.Keys, label: r.Label, since: now, end: now.Add(r.TTL)}
	for _, key := range r.Keys {
		m.tokens[key]++
		m.owners[key] = g
		g.tokens = append(g.tokens, m.tokens[key])
	}
	return g, nil
}

// Fence returns the token of a key.
func (g *grant) Fence(_ context.Context, i int) (int64, error) { return g.tokens[i], nil }

// Renew makes the keys last for ttl from now.
func (g *grant) Renew(_ context.Context, ttl time.Duration) error {
	g.in.mu.Lock()
	defer g.in.mu.Unlock()
	if g.lost() {
		return &locking.LostError{Keys: g.keys, Reason: locking.LossTaken}
	}
	g.end = time.Now().Add(ttl)
	return nil
}

// Release gives up the keys that are still this holder's.
func (g *grant) Release(context.Context) (bool, error) {
	g.in.mu.Lock()
	defer g.in.mu.Unlock()
	lost := g.lost()
	for _, key := range g.keys {
		if g.in.owners[key] == g {
			delete(g.in.owners, key)
		}
	}
	if lost {
		return g.notify, &locking.LostError{Keys: g.keys, Reason: locking.LossTaken}
	}
	return g.notify, nil
}

func (g *grant) lost() bool {
	for _, key := range g.keys {
		if g.in.owners[key] != g {
			return true
		}
	}
	return false
}

func newMemory() *memory {
	return &memory{owners: map[string]*grant{}, tokens: map[string]int64{}}
}

// lose makes the store forget who has a key.
func (m *memory) lose(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.owners, key)
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
