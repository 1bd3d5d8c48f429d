//go:build thorough

package middleware_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func init() {
	on := func(client func(t *testing.T) redis.UniversalClient) func(t *testing.T, play func(r *rig)) {
		return func(t *testing.T, play func(r *rig)) {
			t.Helper()
			play(newRig(t, client(t)))
		}
	}
	headSettings["real Sentinel"] = func(t *testing.T) func(*testing.T, func(*rig)) {
		t.Helper()
		s := redistest.StartSentinel(t)
		return on(func(t *testing.T) redis.UniversalClient { t.Helper(); return s.Client(t) })
	}
	headSettings["real Cluster"] = func(t *testing.T) func(*testing.T, func(*rig)) {
		t.Helper()
		c := redistest.StartCluster(t, 3)
		return on(func(t *testing.T) redis.UniversalClient { t.Helper(); return c.Client(t) })
	}
}
