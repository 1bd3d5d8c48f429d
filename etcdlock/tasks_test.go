package etcdlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/internal/testing/locktaskstest"
	"github.com/railtoken/railtoken/locking"
)

// Tasks are on Redis, locks on etcd. The tasks of an account must be alone, with growing tokens.
func TestTasksOnRedisAreLockedOnEtcd(t *testing.T) {
	t.Parallel()
	etcd := sharedEtcd(t)
	var mu sync.Mutex
	inside, last := map[string]int{}, map[string]int64{}
	locker := func() locking.Locker { return newLocker(t, etcd, etcdlock.Options{Prefix: "tasks/"}) }
	locktaskstest.Run(t, 150, locker, func(ctx context.Context, account string) error {
		lease, ok := locking.FromContext(ctx)
		if !ok {
			return errors.New("the task runs without a lease")
		}
		token, err := lease.Fence(ctx)
		mu.Lock()
		inside[account]++
		if inside[account] != 1 || err != nil || token <= last[account] {
			t.Errorf("account %s: %d tasks at a time, token %d, %v, after %d", account, inside[account], token, err, last[account])
		}
		last[account] = token
		mu.Unlock()
		<-time.After(time.Millisecond) // the work
		mu.Lock()
		defer mu.Unlock()
		inside[account]--
		return nil
	})
}

func TestHoldersOnEtcdAreInspected(t *testing.T) {
	t.Parallel()
	etcd := sharedEtcd(t)
	locktaskstest.Inspect(t, "etcdlock", func() locking.Locker { return newLocker(t, etcd, etcdlock.Options{Prefix: "inspected/"}) })
}

func TestServersOnSeparatePrefixesAreRefused(t *testing.T) {
	t.Parallel()
	etcd := sharedEtcd(t)
	locker := func(prefix string) locking.Locker { return newLocker(t, etcd, etcdlock.Options{Prefix: prefix}) }
	locktaskstest.Separate(t, locker("here/"), locker("here/"), locker("there/"))
}

func TestASupersededTaskHasTheSmallerTokenOfEtcd(t *testing.T) {
	t.Parallel()
	etcd := sharedEtcd(t)
	locktaskstest.Supersede(t, func() locking.Locker { return newLocker(t, etcd, etcdlock.Options{Prefix: "superseded/"}) }, new(fenced).write)
}

// fenced is a resource that refuses smaller tokens than the largest one that has written.
type fenced struct {
	mu      sync.Mutex
	largest int64
}

func (f *fenced) write(_ context.Context, token fence.Token) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token.N < f.largest {
		return fence.ErrFenced
	}
	f.largest = token.N
	return nil
}
