package locking_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestTheLongestDurationsWork(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	single, err := locking.NewSingle(client, locking.SingleOptions{FenceTTL: 2 * leasing.Most})
	if err != nil {
		t.Fatal(err)
	}
	defer single.Close()
	g := locking.NewGate(single, locking.GateOptions{})
	opts := locking.Options{MaxHold: leasing.Most, Notify: leasing.Most}
	first := acquire(t, g, opts, "k")
	if _, err := single.Acquire(t.Context(), []string{"k"}, opts); err == nil {
		t.Fatal("the key is free")
	}
	next := make(chan *locking.Lease, 1)
	go func() {
		lease, err := locking.Wait(t.Context(), g, []string{"k"}, opts)
		if err != nil {
			t.Error(err)
		}
		next <- lease
	}()
	for g.Waiting("k") == 0 {
		runtime.Gosched()
	}
	release(t, first)
	lease := <-next
	if err := lease.Err(); err != nil {
		t.Fatalf("the lease that was handed off: %v", err)
	}
	if err := lease.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	release(t, lease)
	if left := client.PTTL(t.Context(), "railtoken:lock:{k}:fence").Val(); left < 2*leasing.Most-time.Minute {
		t.Errorf("the fence counter is kept for %v", left)
	}
	long := acquire(t, g, locking.Options{TTL: leasing.Most, MaxHold: leasing.Most}, "l")
	release(t, long)
}
