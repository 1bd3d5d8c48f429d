package locking_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/redistest"
	"github.com/railtoken/railtoken/locking"
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
