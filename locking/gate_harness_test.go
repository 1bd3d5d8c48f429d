package locking_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/backend"
)

// ram is a Locker on a backend in memory, which counts what it is asked and can be told to fail. It notifies of no
// release.
type ram struct {
	locking.Locker
	mu       sync.Mutex
	owners   map[string]*ramGrant
	tokens   map[string]int64 // the last one given
	acquires []time.Time
	renewals int
	releases int

	fail        func() error // what an attempt meets first
	failRenew   error
	failRelease error
}

func newRAM() *ram {
	r := &ram{owners: map[string]*ramGrant{}, tokens: map[string]int64{}}
	r.Locker = locking.New((*ramBackend)(r))
	return r
}

// ramBackend is the backend of a ram.
type ramBackend ram

// Acquire makes one attempt.
func (r *ramBackend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	r.mu.Lock()
	r.acquires = append(r.acquires, time.Now())
	fail := r.fail
	r.mu.Unlock()
	if fail != nil {
		if err := fail(); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, key := range req.Keys {
		if held := r.owners[key]; held != nil && now.Before(held.end) {
			if until := now.Add(req.Notify); req.Notify > 0 && until.After(held.notify) {
				held.notify = until
			}
			return nil, &locking.HeldError{Key: key, Holder: locking.Holder{
				Label: held.label, Since: held.since, Fence: r.tokens[key], Remaining: held.end.Sub(now),
			}}
		}
	}
	g := &ramGrant{in: (*ram)(r), keys: req.Keys, block: req.Block, label: req.Label, since: now, end: now.Add(req.TTL)}
	for _, key := range req.Keys {
		g.tokens = append(g.tokens, r.tokens[key]+1)
		r.tokens[key] += int64(req.Block)
		r.owners[key] = g
	}
	return g, nil
}

// asked returns how often it was asked for keys.
func (r *ram) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.acquires)
}

// calls returns how often it was asked for anything but a renewal.
func (r *ram) calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.acquires) + r.releases
}

// renewed returns how often it was asked to renew.
func (r *ram) renewed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.renewals
}

// set changes what it does.
func (r *ram) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// holds reports whether a holder has the key.
func (r *ram) holds(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.owners[key]
	return held != nil && time.Now().Before(held.end)
}

// ramGrant is one acquisition.
type ramGrant struct {
	in         *ram
	keys       []string
	tokens     []int64
	block      int
	label      string
	since, end time.Time
	notify     time.Time // a caller has subscribed to the release until then
}

func (g *ramGrant) Block() int { return g.block }

func (g *ramGrant) Fence(_ context.Context, i int) (int64, error) { return g.tokens[i], nil }

func (g *ramGrant) lost() error {
	for _, key := range g.keys {
		if g.in.owners[key] != g {
			return &locking.LostError{Keys: g.keys, Reason: locking.LossTaken}
		}
	}
	return nil
}

func (g *ramGrant) Renew(_ context.Context, ttl time.Duration) error {
	g.in.mu.Lock()
	defer g.in.mu.Unlock()
	g.in.renewals++
	if g.in.failRenew != nil {
		return g.in.failRenew
	}
	if err := g.lost(); err != nil {
		return err
	}
	g.end = time.Now().Add(ttl)
	return nil
}

func (g *ramGrant) Release(context.Context) (bool, error) {
	g.in.mu.Lock()
	defer g.in.mu.Unlock()
	g.in.releases++
	err := errors.Join(g.lost(), g.in.failRelease)
	for _, key := range g.keys {
		if g.in.owners[key] == g {
			delete(g.in.owners, key)
		}
	}
	return g.notify.After(time.Now()), err
}

// virtually runs a test in virtual time.
func virtually(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// outcome is what a call of Wait returned, and when.
type outcome struct {
	lease *locking.Lease
	err   error
	at    time.Time
}

// waiting starts a call of Wait.
func waiting(ctx context.Context, l locking.Locker, opts locking.Options, keys ...string) <-chan outcome {
	c := make(chan outcome, 1)
	go func() {
		lease, err := locking.Wait(ctx, l, keys, opts)
		c <- outcome{lease, err, time.Now()}
	}()
	return c
}

// inLine starts a call of Wait in a bubble and returns once it stands in line.
func inLine(ctx context.Context, l locking.Locker, opts locking.Options, keys ...string) <-chan outcome {
	c := waiting(ctx, l, opts, keys...)
	synctest.Wait()
	return c
}

// got returns the lease that a call of Wait must have got by now in the bubble.
func got(t *testing.T, c <-chan outcome) *locking.Lease {
	t.Helper()
	synctest.Wait()
	select {
	case o := <-c:
		if o.err != nil {
			t.Fatalf("wait: %v", o.err)
		}
		t.Cleanup(func() { _ = o.lease.Release(context.Background()) })
		return o.lease
	default:
		t.Fatal("the waiter has no lease yet")
		return nil
	}
}

// waits checks that a call of Wait in the bubble has not returned.
func waits(t *testing.T, c <-chan outcome) {
	t.Helper()
	synctest.Wait()
	select {
	case o := <-c:
		t.Fatalf("the wait is over: lease %v, error %v", o.lease, o.err)
	default:
	}
}

// tokenOf returns the token of a lease's first key.
func tokenOf(t testing.TB, l *locking.Lease) int64 {
	t.Helper()
	token, err := l.Fence(t.Context())
	if err != nil {
		t.Errorf("fence: %v", err)
	}
	return token
}
