package lockingtest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// A Gate hands a lease off only if the backend has reserved a block of tokens. Each holder in turn must get a larger
// token than the one before, and so must the next holder in another process.
func tokensGrowWhileALeaseIsHandedOff(s *suite) {
	gates := []*locking.Gate{
		locking.NewGate(s.locker(), locking.GateOptions{HandOffs: 2}),
		locking.NewGate(s.locker(), locking.GateOptions{}),
	}
	key := s.key("hot")
	var last int64 // guarded by the lock under test alone
	var handedOff atomic.Int64
	use := func(lease *locking.Lease) {
		token, err := lease.Fence(s.Context())
		if err != nil || token <= last {
			s.Errorf("token %d, %v, after %d", token, err, last)
		}
		last = token
		if err := lease.Release(s.Context()); err != nil {
			s.Errorf("release: %v", err)
		}
		if lease.HandedOff() {
			handedOff.Add(1)
		}
	}
	for round := range 6 {
		here, elsewhere := gates[round%2], gates[(round+1)%2]
		var all sync.WaitGroup
		first := s.acquire(here, locking.Options{}, key)
		for range 4 {
			s.queue(&all, here, key, use)
		}
		all.Go(func() { s.wait(s.Context(), elsewhere, key, use) })
		use(first)
		all.Wait()
	}
	if handedOff.Load() == 0 {
		s.skip("no lease was handed off: the grants of this backend reserve one token each (see backend.BlockGrant)")
	}
}

// wait waits for a key, and uses its lease.
func (s *suite) wait(ctx context.Context, g *locking.Gate, key string, use func(*locking.Lease)) {
	lease, err := locking.Wait(ctx, g, []string{key}, locking.Options{})
	if err != nil {
		s.Errorf("wait: %v", err)
		return
	}
	use(lease)
}

// queue starts a caller that waits for a key which another caller of the gate holds, and returns once it is in the
// queue.
func (s *suite) queue(all *sync.WaitGroup, g *locking.Gate, key string, use func(*locking.Lease)) {
	s.Helper()
	ctx := &awaited{Context: s.Context(), waits: make(chan struct{})}
	all.Go(func() { s.wait(ctx, g, key, use) })
	select {
	case <-ctx.waits:
	case <-time.After(limit):
		s.Fatalf("a caller was not queued within %v", limit)
	}
}

// awaited is a context that closes waits once a caller waits for its end, as a caller in a Gate's queue does.
type awaited struct {
	context.Context

	once  sync.Once
	waits chan struct{}
}

// Done returns the channel of the embedded context.
func (c *awaited) Done() <-chan struct{} {
	c.once.Do(func() { close(c.waits) })
	return c.Context.Done()
}
