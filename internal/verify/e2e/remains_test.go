package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// within waits for a condition that may take longer than usual.
func within(t *testing.T, limit time.Duration, what string, reached func() bool) {
	t.Helper()
	for began := time.Now(); !reached(); <-time.After(50 * time.Millisecond) {
		if time.Since(began) > limit {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// nothingRemains checks that nobody waits for a key and nobody holds one: there is no registry of waiters, no line and no lock. It waits
// for the locks of processes that were killed.
func nothingRemains(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	var left []string
	for began := time.Now(); time.Since(began) < 10*time.Second; <-time.After(50 * time.Millisecond) {
		if left = remains(t, client); len(left) == 0 {
			return
		}
	}
	t.Errorf("%d registries and locks remain, among them %s", len(left), strings.Join(left[:min(len(left), 5)], " "))
}

// remains returns the names of the registries, lines and locks that are there.
func remains(t *testing.T, client redis.UniversalClient) []string {
	t.Helper()
	found := make(chan string)
	failed := make(chan error, 1)
	go func() {
		defer close(found)
		failed <- eachMaster(t.Context(), client, func(ctx context.Context, node *redis.Client) error {
			keys := node.Scan(ctx, 0, "railtoken:*", 1000).Iterator()
			for keys.Next(ctx) {
				found <- keys.Val()
			}
			return keys.Err()
		})
	}()
	var left []string
	for key := range found {
		switch {
		case strings.HasSuffix(key, "}:fence"), strings.HasSuffix(key, "}:notify"),
			strings.HasPrefix(key, "railtoken:worker"), strings.HasPrefix(key, "railtoken:history:"): // reports
			// They say nothing of now, and expire.
		case key == "railtoken:lock-store", key == "railtoken:lanes": // the identity of the server, and how many lanes there are
		default:
			left = append(left, key)
		}
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	return left
}

// eachMaster calls do with each master of a cluster, or with the one server that there is.
func eachMaster(ctx context.Context, client redis.UniversalClient, do func(context.Context, *redis.Client) error) error {
	switch client := client.(type) {
	case *redis.ClusterClient:
		return client.ForEachMaster(ctx, do)
	case *redis.Client:
		return do(ctx, client)
	default:
		panic("neither a server nor a cluster")
	}
}
