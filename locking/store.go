package locking

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// storeKey is the Redis key with the identity of a lock server. Whoever asks first writes it, at random. A server that has
// lost its data gets another one, and all that keep locks there learn it when they ask again.
const storeKey = "railtoken:lock-store"

// storeOf identifies the place where a Locker keeps its locks: see [lockhook.Store]. Of backends other than those on Redis
// it knows the name.
func storeOf(ctx context.Context, locker any) (store string, ok bool) {
	servers := serversOf(locker)
	ids := make([]string, len(servers))
	for i, client := range servers {
		id, err := storeID(ctx, client)
		if err != nil {
			return "", false
		}
		ids[i] = id
	}
	slices.Sort(ids)
	return strings.Join(append([]string{backendOf(locker)}, ids...), " "), true
}

// storeID returns the identity of a lock server.
func storeID(ctx context.Context, client redis.UniversalClient) (string, error) {
	id := rand.Text()
	was, err := client.SetArgs(ctx, storeKey, id, redis.SetArgs{Mode: "NX"}).Result()
	if err == nil && was == "OK" {
		return id, nil
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", err
	}
	return client.Get(ctx, storeKey).Result()
}

func (g *Gate) lockServers() []redis.UniversalClient           { return serversOf(g.inner) }
func (f *followedLocker) lockServers() []redis.UniversalClient { return serversOf(f.inner) }
func (s *Single) lockServers() []redis.UniversalClient         { return []redis.UniversalClient{s.client} }

func (r *Redlock) lockServers() (all []redis.UniversalClient) {
	for _, n := range r.nodes {
		all = append(all, n.client)
	}
	return all
}

func serversOf(locker any) []redis.UniversalClient {
	if l, ok := locker.(interface {
		lockServers() []redis.UniversalClient
	}); ok {
		return l.lockServers()
	}
	return nil
}
