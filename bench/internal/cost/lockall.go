package cost

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

// callers is how many keys are taken at a time.
const callers = 64

// lockEach takes each of the keys once, on the server with that address, and gives it back at once, or gives keep the lease
// if it is not nil. Several keys are taken at a time; each caller ends with its first error. The connections are closed
// when it returns.
func lockEach(ctx context.Context, addr string, keys []string, single locking.SingleOptions, opts locking.Options,
	keep func(*locking.Lease),
) (err error) {
	conn := redis.NewClient(&redis.Options{Addr: addr, PoolSize: callers})
	defer func() { err = errors.Join(err, conn.Close()) }()
	locker, err := locking.NewSingle(conn, single)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	var all sync.WaitGroup
	errs := make([]error, callers)
	for c := range callers {
		all.Go(func() {
			for i := c; i < len(keys) && errs[c] == nil; i += callers {
				lease, err := locker.Acquire(ctx, keys[i:i+1], opts)
				if err == nil && keep != nil {
					keep(lease)
				} else if err == nil {
					err = lease.Release(ctx)
				}
				errs[c] = err
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// lockKeys returns n keys, all of one length.
func lockKeys(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("order-%06d", i)
	}
	return names
}
