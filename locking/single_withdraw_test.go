package locking_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// A client of several servers gets each call by itself, so those that wait do so in its pool.
func TestAnAttemptAbandonedInThePoolIsUnsent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin, proxy := server.Client(t), redistest.NewProxy(t, server.Addr())
	client := server.Client(t, func(o *redis.Options) { o.Addr, o.PoolSize, o.PoolTimeout = proxy.Addr(), 1, patience })
	l := newSingle(t, struct{ redis.UniversalClient }{client}, locking.SingleOptions{})
	release(t, acquire(t, l, locking.Options{}, "order:1"))

	held := proxy.Hold(acquiring("order:1"))
	first := make(chan *locking.Lease, 1)
	go func() {
		lease, err := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
		if err != nil {
			t.Error(err)
		}
		first <- lease
	}()
	<-held.Caught
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		_, err := l.Acquire(ctx, []string{"order:2"}, locking.Options{})
		second <- err
	}()
	await(t, "the second waits for a connection", func() bool { return client.PoolStats().PendingRequests > 0 })
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	held.Deliver()
	if lease := <-first; lease != nil {
		release(t, lease)
	}
	if err := l.Close(); err != nil { // it waits until the attempt is taken back
		t.Error(err)
	}
	// Only the acquire script raises a counter. What takes an attempt back leaves a mark beside a counter of 0.
	if counter := admin.Get(t.Context(), counterOf("order:2")).Val(); counter != "" && !strings.HasPrefix(counter, "0 ") {
		t.Errorf("the counter is %q: the server had the attempt that was given up", counter)
	}
}
