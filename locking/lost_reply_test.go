package locking_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// cutReplies is how many replies are cut in each way to use a lock, by default 1 200 in all: make lost-replies sets
// more.
var cutReplies = flag.Int64("cuts", 60, "how many replies are cut in each case of TestLostRepliesLoseNoLease")

// cutter cuts some of the replies to scripts.
type cutter struct {
	cuts   atomic.Int64
	enough int64
}

// behind puts a proxy in front of a server that cuts one in oneIn replies, until there were enough.
func (c *cutter) behind(t *testing.T, addr string, oneIn int) string {
	t.Helper()
	p := redistest.NewProxy(t, addr)
	p.Cut(func(request, _ []byte) bool {
		return redistest.IsScript(request) && rand.IntN(oneIn) == 0 && c.cuts.Add(1) <= c.enough
	})
	return p.Addr()
}

func TestLostRepliesLoseNoLease(t *testing.T) {
	t.Parallel()
	single := func(mod func(*redis.Options)) func(t *testing.T, c *cutter) func() locking.Locker {
		return func(t *testing.T, c *cutter) func() locking.Locker {
			server := redistest.Start(t)
			addr := c.behind(t, server.Addr(), 5)
			return func() locking.Locker {
				return newSingle(t, server.Client(t, mod, func(o *redis.Options) { o.Addr = addr }),
					locking.SingleOptions{})
			}
		}
	}
	redlock := func(t *testing.T, c *cutter) func() locking.Locker {
		_, nodes := startNodes(t, 3)
		for _, n := range nodes {
			n.Addr = c.behind(t, n.Addr, 12)
		}
		return func() locking.Locker { return newRedlock(t, nodes, unguarded) }
	}
	for name, tt := range map[string]struct {
		lockers, callers int
		keys             []string
		fresh            func(t *testing.T, c *cutter) func() locking.Locker
	}{
		"single, alone":          {8, 1, []string{"order:1"}, single(deadlines)},
		"single, alone, retries": {8, 1, []string{"order:1"}, single(func(*redis.Options) {})},
		"single, together":       {2, 16, []string{"order:1", "order:2", "order:3", "order:4"}, single(deadlines)},
		"single, together, retries": {
			2, 16,
			[]string{"order:1", "order:2", "order:3", "order:4"},
			single(func(*redis.Options) {}),
		},
		"redlock, alone":    {4, 1, []string{"order:1"}, redlock},
		"redlock, together": {2, 16, []string{"order:1", "order:2", "order:3", "order:4"}, redlock},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locking.Compute(t)
			cuts := *cutReplies
			c := &cutter{enough: cuts}
			fresh := tt.fresh(t, c)
			holders := map[string]*atomic.Int64{}
			for _, key := range tt.keys {
				holders[key] = new(atomic.Int64)
			}
			var leases, lost, unclear atomic.Int64
			var callers sync.WaitGroup
			deadline := time.Now().Add(2 * patience)
			for i := range tt.lockers {
				l := fresh()
				for j := range tt.callers {
					key := tt.keys[(i+j)%len(tt.keys)]
					callers.Go(func() {
						for c.cuts.Load() < cuts && time.Now().Before(deadline) {
							lease, err := l.Acquire(t.Context(), []string{key}, locking.Options{})
							if err != nil {
								if errors.Is(err, locking.ErrLost) {
									t.Errorf("acquire: %v", err)
								}
								<-time.After(time.Duration(rand.IntN(1000)) * time.Microsecond)
								continue
							}
							leases.Add(1)
							if n := holders[key].Add(1); n != 1 {
								t.Errorf("%d holders of %s", n, key)
							}
							err = lease.Err()
							holders[key].Add(-1)
							released := lease.Release(t.Context())
							switch {
							case errors.Is(err, locking.ErrLost) || errors.Is(released, locking.ErrLost):
								if lost.Add(1) < 3 {
									t.Errorf("false loss: %v, %v", err, released)
								}
							case released != nil:
								unclear.Add(1)
							}
						}
					})
				}
			}
			callers.Wait()
			t.Logf("%d leases, %d cut replies, %d false losses, %d releases without an answer", leases.Load(),
				c.cuts.Load(), lost.Load(), unclear.Load())
			if n := c.cuts.Load(); n < cuts {
				t.Errorf("only %d replies were cut", n)
			}
			if n := lost.Load(); n > 0 {
				t.Errorf("%d false losses", n)
			}
			l := fresh()
			for _, key := range tt.keys {
				began := time.Now()
				release(t, eventually(t, l, key))
				if took := time.Since(began); took > time.Second {
					t.Errorf("%s was locked without a holder for %v", key, took)
				}
			}
		})
	}
}
