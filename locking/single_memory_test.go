package locking_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// A Redis without memory refuses what may need more. A renewal needs none: if it were refused, every handler that runs
// for longer than its TTL would be stopped.
func TestLeasesWorkWhileRedisIsOutOfMemory(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	locker := newSingle(t, client, locking.SingleOptions{})
	lease, err := locker.Acquire(t.Context(), []string{"a", "b"}, locking.Options{TTL: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Set(t.Context(), "more", "1", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
		t.Fatalf("Redis has memory left: %v", err)
	}
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("the lease is not renewed: %v", err)
	}
	if err := lease.Release(context.Background()); err != nil {
		t.Errorf("the lease is not released: %v", err)
	}
}
