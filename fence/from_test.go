package fence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestFenceFromHasTheTokenOfTheLease(t *testing.T) {
	t.Parallel()
	locker, err := locking.NewSingle(redistest.Start(t).Client(t), locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	err = locking.Do(t.Context(), locker, []string{"a", "b"}, locking.Options{}, func(ctx context.Context, outer *locking.Lease) error {
		return locking.Do(ctx, locker, []string{"c"}, locking.Options{}, func(ctx context.Context, inner *locking.Lease) error {
			for key, lease := range map[string]*locking.Lease{"b": outer, "c": inner} {
				want, err := lease.FenceOf(ctx, key)
				if got, fromErr := fence.From(ctx, key); err != nil || fromErr != nil || got != (fence.Token{Key: key, N: want}) {
					t.Errorf("key %s: %+v, %v, %v; want %d", key, got, err, fromErr, want)
				}
			}
			if _, err := fence.From(locking.NewContext(ctx, nil), "c"); !errors.Is(err, fence.ErrNoToken) {
				t.Errorf("a context without the lease: %v", err)
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}
