package redistest_test

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// once returns the options of a client that sends each command once, and waits for the answer however long it takes.
func once(addr string) func(*redis.Options) {
	return func(o *redis.Options) { o.Addr, o.MaxRetries, o.ReadTimeout = addr, -1, time.Minute }
}

func TestAHeldRequestArrivesAfterItsClientHasGone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.Client(t, once(proxy.Addr()))
	held := proxy.Hold(func(request []byte) bool { return bytes.Contains(request, []byte("late")) })
	go func() {
		<-held.Caught
		_ = client.Close()
	}()
	if err := client.Set(t.Context(), "late", "1", 0).Err(); err == nil {
		t.Fatal("the request was not held back")
	}
	if err := server.Client(t, once(proxy.Addr())).Set(t.Context(), "other", "1", 0).Err(); err != nil {
		t.Errorf("another connection is held back too: %v", err)
	}
	if n := admin.Exists(t.Context(), "late").Val(); n != 0 {
		t.Error("the request has arrived already")
	}
	held.Deliver()
	if n := admin.Exists(t.Context(), "late").Val(); n != 1 {
		t.Error("the request has not arrived")
	}
}

func TestACutReplyIsExecutedAndNotSeen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.Client(t, once(proxy.Addr()))
	var cuts atomic.Int64
	proxy.Cut(func(request, _ []byte) bool {
		return bytes.Contains(request, []byte("incr")) && cuts.Add(1) == 1
	})
	if err := client.Incr(t.Context(), "n").Err(); err == nil {
		t.Error("the reply was seen")
	}
	if n := admin.Get(t.Context(), "n").Val(); n != "1" {
		t.Errorf("the counter is %q, want 1", n)
	}
	if n, err := client.Incr(t.Context(), "n").Result(); err != nil || n != 2 {
		t.Errorf("the next call: %d, %v", n, err)
	}
}
