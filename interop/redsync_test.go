package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// redsyncUser takes locks with redsync, on one node or on a majority of several.
type redsyncUser struct{ sync *redsync.Redsync }

func openRedsync(t *testing.T, servers []*redistest.Server) foreign {
	each := make([]pools.Pool, len(servers))
	for i, s := range servers {
		each[i] = goredis.NewPool(s.Client(t, impatient))
	}
	return redsyncUser{redsync.New(each...)}
}

func (u redsyncUser) lock(ctx context.Context, name string, ttl time.Duration) (foreignLock, error) {
	mutex := u.sync.NewMutex(name, redsync.WithExpiry(ttl))
	if err := mutex.TryLockContext(ctx); isTaken(err) {
		return nil, errTaken
	} else if err != nil {
		return nil, err
	}
	return redsyncLock{mutex}, nil
}

type redsyncLock struct{ *redsync.Mutex }

func (l redsyncLock) unlock(ctx context.Context) (bool, error) {
	ok, err := l.UnlockContext(ctx)
	return answer(ok, err, isTaken(err) || errors.Is(err, redsync.ErrLockAlreadyExpired))
}

func (l redsyncLock) extend(ctx context.Context) (bool, error) {
	ok, err := l.ExtendContext(ctx)
	return answer(ok, err, isTaken(err))
}

// isTaken reports whether a server refused because another value is there, or none.
func isTaken(err error) bool {
	_, most := errors.AsType[*redsync.ErrTaken](err)
	_, one := errors.AsType[*redsync.ErrNodeTaken](err)
	return most || one
}

// answer returns what a holder is told: no fault when the lock is merely no longer its own.
func answer(ok bool, err error, gone bool) (bool, error) {
	if ok || gone {
		return ok, nil
	}
	return false, err
}
