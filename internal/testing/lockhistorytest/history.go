// Package lockhistorytest records what callers of locks have seen, and models a lock, for a linearizability checker. The
// modules whose tests need the checker pass both to porcupine, on which the core does not depend.
package lockhistorytest

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// Never is the return of an operation without an answer, which may take effect at any time.
const Never = math.MaxInt64

// Event is the beginning or the end of a lease.
type Event struct {
	Token int64
	Ends  bool
}

// Operation is an event that a client has caused between two times, in nanoseconds.
type Operation struct {
	Client       int
	Event        Event
	Call, Return int64
}

// state is the holder's token, or 0, and the last one.
type state struct{ holder, last int64 }

// Init returns the state of a free lock.
func Init() any { return state{} }

// Step is what a lock does: it has one holder at a time, and tokens that grow. It returns whether the event can happen in
// a state, and the next state.
func Step(before, event, _ any) (bool, any) {
	s, e := before.(state), event.(Event) //nolint:errcheck,forcetypeassert // the checker passes on what it was given
	if e.Ends {
		return s.holder == e.Token, state{last: s.last}
	}
	return s.holder == 0 && e.Token > s.last, state{e.Token, e.Token}
}

// History is what callers have seen. Its methods may be called from any goroutine, except Await.
type History struct {
	began time.Time

	mu     sync.Mutex
	byKey  map[string][]Operation
	leases int
	lost   int
}

// New returns an empty history.
func New() *History { return &History{began: time.Now(), byKey: map[string][]Operation{}} }

func (h *History) now() int64 { return int64(time.Since(h.began)) }

func (h *History) add(key string, op Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byKey[key] = append(h.byKey[key], op)
	if !op.Event.Ends {
		h.leases++
	}
}

// Use takes a key, holds it for a time or until the lease is lost, releases it, and records that. The error is why there
// was no lease.
func (h *History) Use(
	ctx context.Context, client int, l locking.Locker, key string, hold time.Duration, opts locking.Options,
) error {
	call := h.now()
	lease, err := locking.Wait(ctx, l, []string{key}, opts)
	if err != nil {
		return err
	}
	token, err := lease.Fence(ctx)
	if err != nil {
		return errors.Join(err, lease.Release(context.WithoutCancel(ctx)))
	}
	h.add(key, Operation{client, Event{Token: token}, call, h.now()})
	select {
	case <-time.After(hold):
	case <-lease.Done():
	}
	call = h.now()
	err = lease.Release(context.WithoutCancel(ctx))
	end := h.now()
	if err != nil {
		end = Never
	}
	if errors.Is(err, locking.ErrLost) {
		h.mu.Lock()
		h.lost++
		h.mu.Unlock()
	}
	h.add(key, Operation{client, Event{Token: token, Ends: true}, call, end})
	return nil
}

// Leases returns how many leases there were, and how many of them were lost before their release.
func (h *History) Leases() (all, lost int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leases, h.lost
}

// Await returns when there were so many leases more.
func (h *History) Await(tb testing.TB, more int) {
	tb.Helper()
	count := func() int { all, _ := h.Leases(); return all }
	for want, began := count()+more, time.Now(); count() < want; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			tb.Fatalf("fewer than %d leases in a minute", more)
		}
	}
}

// Judge fails the test unless linearizable says that the events of each key can have happened in some order, one at a
// time. Call it when no Use is under way.
func (h *History) Judge(tb testing.TB, linearizable func([]Operation) bool) {
	tb.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, all := range h.byKey {
		if !linearizable(all) {
			tb.Errorf("the %d events of %q are not those of a lock, or that was not decided in time", len(all), key)
		}
	}
	if h.leases == 0 {
		tb.Error("there was no lease")
	}
	tb.Logf("%d leases, %d of them lost", h.leases, h.lost)
}
