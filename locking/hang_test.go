package locking_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// wrapped is a client of which a Locker does not know that it talks to one server.
type wrapped struct{ *redis.Client }

// Redis stands still for 3 s under 6 000 requests that last 0.3 s. After it continues, no key stays locked.
func TestNoKeyStaysLockedAfterAHang(t *testing.T) {
	// Not parallel: its thousands of requests and the tests beside it would slow one another.
	for name, open := range map[string]func(t *testing.T, servers []*redistest.Server) locking.Locker{
		"single": func(t *testing.T, servers []*redistest.Server) locking.Locker {
			return newSingle(t, servers[0].Client(t, deadlines), locking.SingleOptions{})
		},
		"single, default client": func(t *testing.T, servers []*redistest.Server) locking.Locker {
			return newSingle(t, servers[0].Client(t), locking.SingleOptions{})
		},
		"single, wrapped client": func(t *testing.T, servers []*redistest.Server) locking.Locker {
			l, err := locking.NewSingle(wrapped{servers[0].Client(t)}, locking.SingleOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			return l
		},
		"redlock": func(t *testing.T, servers []*redistest.Server) locking.Locker {
			var nodes []*redis.Options
			for _, s := range servers {
				nodes = append(nodes, &redis.Options{Addr: s.Addr()})
			}
			return newRedlock(t, nodes, unguarded)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
			if name != "redlock" {
				servers = servers[:1]
			}
			l := open(t, servers)
			behind := locking.NewGate(l, locking.GateOptions{})
			release(t, eventually(t, l, "warm")) // the servers know the scripts
			for _, s := range servers {
				s.Pause()
			}
			began := time.Now()
			var callers sync.WaitGroup
			for i := range 6000 {
				callers.Go(func() {
					<-time.After(time.Duration(i) * 450 * time.Microsecond)
					ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
					defer cancel()
					key, to := []string{fmt.Sprint("order:", i)}, l
					if i%2 == 0 {
						to = behind
					}
					if lease, err := to.Acquire(ctx, key, locking.Options{}); err == nil {
						_ = lease.Release(context.Background())
					}
				})
			}
			callers.Wait()
			if rest := 3*time.Second - time.Since(began); rest > 0 {
				<-time.After(rest)
			}
			for _, s := range servers {
				s.Resume()
			}
			continued := time.Now()
			admins := admins(t, servers)
			for {
				left := 0
				for _, admin := range admins {
					left += len(admin.Keys(t.Context(), "railtoken:lock:{*}").Val())
				}
				if left == 0 && time.Since(continued) > time.Second { // none is locked late
					break
				}
				if time.Since(continued) > 2*time.Second {
					t.Fatalf("%d keys are still locked", left)
				}
				<-time.After(100 * time.Millisecond)
			}
			began = time.Now()
			if err := l.(io.Closer).Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("Close took %v", took)
			}
		})
	}
}
