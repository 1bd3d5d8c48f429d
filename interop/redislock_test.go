package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// redislockUser takes locks with redislock, which knows a single node only.
type redislockUser struct{ client *redislock.Client }

func openRedislock(t *testing.T, servers []*redistest.Server) foreign {
	if len(servers) != 1 {
		t.Fatalf("redislock is for one node, not for %d", len(servers))
	}
	return redislockUser{redislock.New(servers[0].Client(t, impatient))}
}

func (u redislockUser) lock(ctx context.Context, name string, ttl time.Duration) (foreignLock, error) {
	lock, err := u.client.Obtain(ctx, name, ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil, errTaken
	}
	if err != nil {
		return nil, err
	}
	return redislockLock{lock, ttl}, nil
}

type redislockLock struct {
	*redislock.Lock
	ttl time.Duration
}

func (l redislockLock) unlock(ctx context.Context) (bool, error) {
	err := l.Release(ctx)
	return answer(err == nil, err, errors.Is(err, redislock.ErrLockNotHeld))
}

func (l redislockLock) extend(ctx context.Context) (bool, error) {
	err := l.Refresh(ctx, l.ttl, nil)
	return answer(err == nil, err, errors.Is(err, redislock.ErrNotObtained))
}
