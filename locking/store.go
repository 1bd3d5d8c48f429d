package locking

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/locking/backend"
)

// storeOf identifies the place where a Locker keeps its locks: see [lockaccess.Access].
func storeOf(ctx context.Context, locker any) (store string, ok bool) {
	switch l := locker.(type) {
	case interface {
		store(ctx context.Context) (string, bool)
	}:
		return l.store(ctx)
	case backend.Identified:
		id, err := l.Store(ctx)
		return backendOf(locker) + " " + id, err == nil && id != ""
	}
	return "", false
}

func (g *Gate) store(ctx context.Context) (string, bool)           { return storeOf(ctx, g.inner) }
func (f *followedLocker) store(ctx context.Context) (string, bool) { return storeOf(ctx, f.inner) }
func (l *backendLocker) store(ctx context.Context) (string, bool)  { return storeOf(ctx, l.backend) }

func (s *Single) store(ctx context.Context) (string, bool) {
	return storeOn(ctx, s.backendName(), s.lockKey, s.client)
}

func (r *Redlock) store(ctx context.Context) (string, bool) {
	servers := make([]redis.UniversalClient, len(r.nodes))
	for i, n := range r.nodes {
		servers[i] = n.client
	}
	return storeOn(ctx, r.backendName(), r.opts.RedisKey, servers...)
}

// storeOn returns the store of a backend on Redis: the identities of its servers, whose order makes no difference, and a
// sample of its Redis keys if they are not the usual ones.
func storeOn(
	ctx context.Context, backend string, lockKey func(string) string, servers ...redis.UniversalClient,
) (store string, ok bool) {
	ids := make([]string, len(servers))
	for i, client := range servers {
		id, err := storeID(ctx, client)
		if err != nil {
			return "", false
		}
		ids[i] = id
	}
	slices.Sort(ids)
	store = backend + " " + strings.Join(ids, " ")
	if name := lockKey(sampleKey); name != lockwire.LockKey(sampleKey) {
		store += " " + strconv.Quote(name)
	}
	return store, true
}

// sampleKey is the business key of the sample.
const sampleKey = "KEY"

// storeID returns the identity of a lock server. Whoever asks first writes it, at random. A server that has lost its data
// gets another one, and all that keep locks there learn it when they ask again.
func storeID(ctx context.Context, client redis.UniversalClient) (string, error) {
	id, err := client.Get(ctx, lockwire.StoreKey).Result()
	if !errors.Is(err, redis.Nil) {
		return id, err
	}
	err = client.SetArgs(ctx, lockwire.StoreKey, rand.Text(), redis.SetArgs{Mode: "NX"}).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", err
	}
	return client.Get(ctx, lockwire.StoreKey).Result() // that of whoever was first
}

// backendOf returns the name of a locker's backend: redis, redlock, or that of the package that implements it.
func backendOf(locker any) string {
	if l, ok := locker.(interface{ backendName() string }); ok {
		return l.backendName()
	}
	name, _, _ := strings.Cut(strings.TrimLeft(fmt.Sprintf("%T", locker), "*"), ".")
	return name
}

func (g *Gate) backendName() string { return backendOf(g.inner) }

func (f *followedLocker) backendName() string { return backendOf(f.inner) }

func (l *backendLocker) backendName() string { return backendOf(l.backend) }

func (*Single) backendName() string { return "redis" }

func (*Redlock) backendName() string { return "redlock" }
