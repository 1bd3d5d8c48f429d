package locking_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/backend"
)

func TestACallersOwnKeyIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	single := newSingle(t, redistest.Start(t).Client(t), locking.SingleOptions{})
	var nodes []*redis.Options
	for range 3 {
		nodes = append(nodes, &redis.Options{Addr: redistest.Start(t).Addr()})
	}
	redlock := newRedlock(t, nodes, unguarded)
	for name, l := range map[string]locking.Locker{
		"single": single, "redlock": redlock,
		"gate": locking.NewGate(single, locking.GateOptions{}), "gate of a redlock": locking.NewGate(redlock,
			locking.GateOptions{}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			a, b, other := name+" a", name+" b", name+" other"
			nothing := func(context.Context, *locking.Lease) error { return nil }
			refused := func(what string, err error, key string) {
				t.Helper()
				op, ok := errors.AsType[*locking.OpError](err)
				if !errors.Is(err, locking.ErrReentrant) || !ok || !slices.Equal(op.Keys, []string{key}) {
					t.Errorf("%s: %v; want ErrReentrant for %q", what, err, key)
				}
			}
			var after context.Context
			err := locking.Do(ctx, l, []string{a}, locking.Options{},
				func(ctx context.Context, outer *locking.Lease) error {
					after = ctx //nolint:fatcontext // to look at it when the lease is over
					_, err := l.Acquire(ctx, []string{a}, locking.Options{})
					refused("Acquire", err, a)
					_, err = locking.Wait(ctx, l, []string{other, a}, locking.Options{})
					refused("Wait", err, a)
					refused("Do", locking.Do(ctx, l, []string{a}, locking.Options{}, nothing), a)
					return locking.Do(ctx, l, []string{b}, locking.Options{},
						func(ctx context.Context, inner *locking.Lease) error {
							if lease, ok := locking.FromContext(ctx); !ok || lease != inner {
								t.Error("the context does not carry the inner lease")
							}
							refused("Do, of the outer key", locking.Do(ctx, l, []string{a}, locking.Options{}, nothing), a)
							refused("Do, of the inner key", locking.Do(ctx, l, []string{b}, locking.Options{}, nothing), b)
							return locking.Do(ctx, l, []string{other}, locking.Options{}, nothing)
						})
				})
			if err != nil {
				t.Error(err)
			}
			if err := locking.Do(context.WithoutCancel(after), l, []string{a}, locking.Options{}, nothing); err != nil {
				t.Errorf("a lease that has ended refuses its key: %v", err)
			}
			leases, err := locking.Collect(ctx, l, []string{a, b}, locking.Options{})
			if err != nil {
				t.Fatal(err)
			}
			joined, err := locking.Join(ctx, leases, locking.Options{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = locking.Wait(locking.NewContext(ctx, joined), l, []string{b}, locking.Options{})
			refused("Wait, of a joined lease", err, b)
			if err := joined.Release(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// A gate in front of the same Locker sends its callers there.
func TestAnotherGateRefusesAKeyOfOnesOwn(t *testing.T) {
	t.Parallel()
	single := newSingle(t, redistest.Start(t).Client(t), locking.SingleOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := locking.Do(ctx, locking.NewGate(single, locking.GateOptions{}), []string{"a"}, locking.Options{},
		func(ctx context.Context, _ *locking.Lease) error {
			for name, l := range map[string]locking.Locker{
				"the Locker itself": single, "another gate": locking.NewGate(single, locking.GateOptions{}),
			} {
				if _, err := locking.Wait(ctx, l, []string{"a"}, locking.Options{}); !errors.Is(err, locking.ErrReentrant) {
					t.Errorf("%s: %v; want ErrReentrant", name, err)
				}
			}
			return nil
		})
	if err != nil {
		t.Error(err)
	}
}

// A caller that holds a key through one Locker asks for it through others on the same servers, where a stranger already
// waits for the key.
func TestAKeyOfOnesOwnIsRefusedByOtherLockers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	nodes := []*redis.Options{{Addr: server.Addr()}}
	for range 2 {
		nodes = append(nodes, &redis.Options{Addr: redistest.Start(t).Addr()})
	}
	single := func() locking.Locker { return newSingle(t, server.Client(t), locking.SingleOptions{}) }
	redlock := func() locking.Locker { return newRedlock(t, nodes, unguarded) }
	store := &memory{}
	for name, open := range map[string]func() locking.Locker{
		"single": single, "redlock": redlock, "backend": func() locking.Locker { return locking.New(store) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			first, second := open(), open()
			busy := locking.NewGate(open(), locking.GateOptions{})
			lockers := map[string]locking.Locker{
				"itself": first, "another": second, "another behind a gate": locking.NewGate(open(), locking.GateOptions{}),
				"a gate where others wait": busy,
			}
			err := locking.Do(ctx, locking.NewGate(first, locking.GateOptions{}), []string{name}, locking.Options{},
				func(inner context.Context, _ *locking.Lease) error {
					stranger, leave := context.WithCancel(ctx)
					var waiting sync.WaitGroup
					waiting.Go(func() {
						if lease, err := locking.Wait(stranger, busy, []string{name}, locking.Options{}); err == nil {
							_ = lease.Release(ctx)
						}
					})
					await(t, "a stranger waits", func() bool { return busy.Waiting(name) > 0 })
					for which, l := range lockers {
						_, err := locking.Wait(inner, l, []string{name}, locking.Options{})
						if op, ok := errors.AsType[*locking.OpError](err); !ok || !errors.Is(err, locking.ErrReentrant) ||
							!slices.Equal(op.Keys, []string{name}) {
							t.Errorf("%s: Wait: %v; want ErrReentrant", which, err)
						}
						if _, err := l.Acquire(inner, []string{name}, locking.Options{}); !errors.Is(err, locking.ErrReentrant) {
							t.Errorf("%s: Acquire: %v; want ErrReentrant", which, err)
						}
					}
					leave()
					waiting.Wait()
					return nil
				})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// memory is a backend for one lock.
type memory struct {
	mu     sync.Mutex
	holder *memoryGrant
	tokens int64
}

type memoryGrant struct {
	of    *memory
	token int64
}

func (m *memory) Acquire(_ context.Context, r backend.Request) (backend.Grant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.holder != nil {
		return nil, &locking.HeldError{Key: r.Keys[0], Holder: locking.Holder{Label: r.Label, Fence: m.holder.token}}
	}
	m.tokens++
	m.holder = &memoryGrant{m, m.tokens}
	return m.holder, nil
}

func (g *memoryGrant) Fence(context.Context, int) (int64, error)  { return g.token, nil }
func (g *memoryGrant) Renew(context.Context, time.Duration) error { return nil }

func (g *memoryGrant) Release(context.Context) (bool, error) {
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	g.of.holder = nil
	return true, nil
}
