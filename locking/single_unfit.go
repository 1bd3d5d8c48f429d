package locking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/rediswire"
)

const (
	// fitFor is how long a Redis that was found fit is not asked again: a failover may lead to another server.
	fitFor = time.Minute
	// unfitFor is the same for a Redis that was refused, or has not answered.
	unfitFor = time.Second
	// fitnessPatience is how long an attempt waits for the answer. A server that hangs then fails the attempt itself.
	fitnessPatience = 500 * time.Millisecond
	// fitnessTimeout is how long the servers may take to answer.
	fitnessTimeout = 2 * time.Second
)

// fitness knows whether the servers of a [Single] may evict keys, and thus locks that are held. It asks with INFO
// before the first attempt, and later beside the attempts.
type fitness struct {
	client redis.UniversalClient
	began  time.Time
	next   atomic.Int64 // when the servers are asked again: ns since began
	fit    atomic.Bool  // the last answer was that they may be used

	mu     sync.Mutex
	asking chan struct{} // closed when the answer has come; nil while none is due
	err    error         // the refusal
}

// check returns an error if a server may evict keys. It waits only if it does not know that they are fit.
func (f *fitness) check(ctx context.Context) error {
	due := int64(leasing.Since(f.began)) >= f.next.Load()
	if f.fit.Load() && !due {
		return nil
	}
	f.mu.Lock()
	if due && f.asking == nil {
		f.asking = make(chan struct{})
		go f.ask(f.asking)
	}
	asking := f.asking
	f.mu.Unlock()
	if f.fit.Load() {
		return nil
	}
	if asking != nil {
		timer := time.NewTimer(fitnessPatience)
		defer timer.Stop()
		select {
		case <-asking:
		case <-timer.C:
		case <-ctx.Done(): // the attempt says so
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// ask asks all servers.
func (f *fitness) ask(answered chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), fitnessTimeout)
	defer cancel()
	known, refusal := evicting(ctx, f.client)
	f.mu.Lock()
	defer f.mu.Unlock()
	pause := unfitFor
	if known && refusal == nil {
		pause = fitFor
	}
	if known {
		f.err = refusal
		f.fit.Store(refusal == nil)
	}
	f.next.Store(int64(leasing.Since(f.began) + pause))
	f.asking = nil
	close(answered)
}

// evicting returns an error if a server of the client may evict keys. known says that all servers have answered; one
// that refuses INFO is assumed to be fit.
func evicting(ctx context.Context, client redis.UniversalClient) (known bool, refusal error) {
	var mu sync.Mutex
	known = true
	look := func(ctx context.Context, server redis.Cmdable, addr string) {
		info, err := server.Info(ctx, "memory").Result()
		_, replied := errors.AsType[redis.Error](err)
		mu.Lock()
		defer mu.Unlock()
		known = known && (err == nil || replied)
		if policy := rediswire.EvictionPolicy(info); err == nil && policy != "" {
			refusal = fmt.Errorf("%w: Redis %s may evict locks when its memory is full (maxmemory-policy %s): %s, "+
				"or set AllowEviction", ErrUnavailable, addr, policy, rediswire.EvictionRemedy)
		}
	}
	switch c := client.(type) {
	case *redis.Client:
		look(ctx, c, c.Options().Addr)
	case *redis.ClusterClient:
		err := c.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			look(ctx, master, master.Options().Addr)
			return nil
		})
		known = known && err == nil
	default:
		look(ctx, client, "")
	}
	return known, refusal
}
