package locking_test

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// delays are connections on which the first renewal arrives late, and no other one does after some time.
type delays struct {
	script []byte
	sent   chan int
	go1    chan struct{} // closed: the first renewal goes on
	count  atomic.Int64
	deaf   atomic.Bool // the others do not arrive any more
}

type delayedConn struct {
	net.Conn
	in *delays
}

func (c *delayedConn) Write(b []byte) (int, error) {
	if !bytes.Contains(b, c.in.script) {
		return c.Conn.Write(b)
	}
	n := int(c.in.count.Add(1))
	defer func() { c.in.sent <- n }()
	switch {
	case n == 1:
		late, addr := bytes.Clone(b), c.RemoteAddr()
		go func() {
			<-c.in.go1
			again, err := net.Dial(addr.Network(), addr.String())
			if err == nil {
				_, _ = again.Write(late)
				_, _ = again.Read(make([]byte, 64)) // the answer: the server has seen it
				_ = again.Close()
			}
			c.in.sent <- -1
		}()
		return len(b), nil
	case c.in.deaf.Load():
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

// A renewal near MaxHold is for less than the TTL. Were it to arrive after the lease was handed off, it would cut short
// what the next holder has renewed, with the same owner value and token: two leases would be valid at the same time.
func TestALateRenewalShortensNoOtherLease(t *testing.T) {
	t.Parallel()
	sum := sha1.Sum([]byte(lockwire.Renew)) //nolint:gosec // see above
	d := &delays{script: []byte(hex.EncodeToString(sum[:])), sent: make(chan int, 100), go1: make(chan struct{})}
	server := redistest.Start(t)
	plain := server.Client(t, deadlines)
	if err := plain.ScriptLoad(t.Context(), lockwire.Renew).Err(); err != nil {
		t.Fatal(err)
	}
	client := server.Client(t, deadlines, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return &delayedConn{Conn: c, in: d}, err
		}
	})
	gate := locking.NewGate(newSingle(t, client, locking.SingleOptions{}), locking.GateOptions{})
	first := acquire(t, gate, locking.Options{TTL: 3 * time.Second, MaxHold: 3050 * time.Millisecond}, "k")
	got := make(chan *locking.Lease, 1)
	go func() {
		next, err := locking.Wait(t.Context(), gate, []string{"k"},
			locking.Options{TTL: 3 * time.Second, MaxHold: 3050 * time.Millisecond})
		if err != nil {
			t.Error(err)
		}
		got <- next
	}()
	<-d.sent // for 2.8 s at most, up to MaxHold, and on its way
	release(t, first)
	next := <-got
	if next == nil {
		return
	}
	if err := next.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.deaf.Store(true)
	close(d.go1)
	await(t, "the late renewal has arrived", func() bool {
		select {
		case n := <-d.sent:
			return n == -1
		default:
			return false
		}
	})
	kept := plain.PTTL(t.Context(), lockOf("k")).Val()
	if trusted := time.Until(next.ValidUntil()); kept < trusted {
		t.Errorf("the lease is trusted for %v, and the server keeps its lock for %v", trusted, kept)
	}
	_ = next.Release(t.Context())
}

// decorated is a Locker in front of another one that the gate does not know.
type decorated struct{ locking.Locker }

func TestAHiddenGateIsAnErrorAndLocksNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		backend := newRAM()
		gate := locking.NewGate(decorated{locking.NewGate(backend, locking.GateOptions{})}, locking.GateOptions{})
		for range 2 {
			lease, err := gate.Acquire(t.Context(), []string{"k"}, locking.Options{})
			if lease != nil || err == nil || errors.Is(err, locking.ErrHeld) ||
				!strings.Contains(err.Error(), "in front of another gate") {
				t.Fatalf("acquired %v, error %v", lease, err)
			}
			synctest.Wait()
		}
		if backend.holds("k") {
			t.Error("the key stays locked")
		}
	})
}

func TestInterestOutlivesALoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := locking.NewGate(newRAM(), locking.GateOptions{})
		lease := acquire(t, gate, locking.Options{TTL: time.Second, MaxHold: time.Second}, "k")
		released, stop, err := gate.Watch(t.Context(), []string{"k"})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		if _, err := gate.Acquire(t.Context(), []string{"k"},
			locking.Options{Notify: time.Hour}); !errors.Is(err, locking.ErrHeld) {
			t.Fatal(err)
		}
		lost(t, lease)
		synctest.Wait()
		select {
		case <-released:
		default:
			t.Error("a watch was not told of the loss")
		}
		_ = lease.Release(t.Context())
		if !lease.ShouldNotify() {
			t.Error("a task that is parked on the key is not notified")
		}
	})
}

func TestWaitingCallersShareOneAnswer(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{
		"no server can be reached": fmt.Errorf("%w: down", locking.ErrUnavailable),
		"held elsewhere": &locking.HeldError{
			Key:    "k",
			Holder: locking.Holder{Label: "elsewhere", Remaining: time.Minute},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backend := newRAM()
				backend.fail = func() error {
					<-time.After(2 * time.Second)
					return answer
				}
				gate := locking.NewGate(backend, locking.GateOptions{})
				began := time.Now()
				var callers sync.WaitGroup
				for range 20 {
					callers.Go(func() {
						if _, err := gate.Acquire(t.Context(), []string{"k"}, locking.Options{}); !errors.Is(err, answer) {
							t.Errorf("error %v, want %v", err, answer)
						}
					})
				}
				callers.Wait()
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("the last answer came after %v, want one round trip of 2s", took)
				}
			})
		})
	}
}

// One who has come with a subscription of its own must be seen by the servers.
func TestASubscriptionIsNotSharedWithOtherAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		backend := newRAM()
		holder := acquire(t, backend, locking.Options{}, "k")
		backend.fail = func() error {
			<-time.After(time.Second)
			return nil
		}
		gate := locking.NewGate(backend, locking.GateOptions{})
		var callers sync.WaitGroup
		callers.Go(func() { _, _ = gate.Acquire(t.Context(), []string{"k"}, locking.Options{}) })
		synctest.Wait()
		callers.Go(func() { _, _ = gate.Acquire(t.Context(), []string{"k"}, locking.Options{Notify: time.Minute}) })
		callers.Wait()
		release(t, holder)
		if !holder.ShouldNotify() {
			t.Error("the holder was not told of the subscription")
		}
	})
}

func TestAHandOffKeepsTheMaxHoldOfTheServers(t *testing.T) {
	t.Parallel()
	gate := locking.NewGate(newSingle(t, redistest.Start(t).Client(t, deadlines),
		locking.SingleOptions{FenceTTL: time.Minute}), locking.GateOptions{})
	holder := acquire(t, gate, locking.Options{MaxHold: 40 * time.Second}, "k")
	got := make(chan error, 1)
	go func() {
		lease, err := locking.Wait(t.Context(), gate, []string{"k"}, locking.Options{MaxHold: time.Hour})
		if err == nil {
			_ = lease.Release(context.Background())
		}
		got <- err
	}()
	await(t, "a caller waits", func() bool { return gate.Waiting("k") == 1 })
	release(t, holder)
	if err := <-got; err == nil || !strings.Contains(err.Error(), "FenceTTL") {
		t.Errorf("error %v, want that MaxHold is above FenceTTL", err)
	}
}
