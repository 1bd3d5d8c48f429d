package locking

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func TestALeaseForgetsContextsWhoseParentsHaveEnded(t *testing.T) {
	g := &fakeGrant{}
	bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		var alive []context.Context
		for i := range 10_000 {
			parent, cancel := context.WithCancel(t.Context())
			ctx := l.Context(parent)
			if i%1000 == 0 {
				t.Cleanup(cancel)
				alive = append(alive, ctx)
				continue
			}
			cancel()
		}
		l.mu.Lock()
		kept := len(l.contexts)
		l.mu.Unlock()
		if most := 2*len(alive) + firstContexts; kept > most {
			t.Errorf("the lease keeps %d contexts, of which %d have not ended; want %d at most", kept, len(alive), most)
		}
		_ = l.Release(t.Context())
		for _, ctx := range alive {
			if !errors.Is(context.Cause(ctx), ErrReleased) {
				t.Errorf("the cause of a context is %v, want ErrReleased", context.Cause(ctx))
			}
		}
	})
}

func TestContextsEndWithTheLeaseAfterAnEarlierOneHasEnded(t *testing.T) {
	bubble(t, &fakeGrant{}, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		parent, cancel := context.WithCancel(t.Context())
		ended := l.Context(parent)
		cancel()
		_, drop := l.during(t.Context())
		drop()
		all := []context.Context{l.Context(t.Context()), l.Context(t.Context())}
		_ = l.Release(t.Context())
		for i, ctx := range all {
			if !errors.Is(context.Cause(ctx), ErrReleased) {
				t.Errorf("the cause of context %d is %v, want ErrReleased", i, context.Cause(ctx))
			}
		}
		if !errors.Is(context.Cause(ended), context.Canceled) || errors.Is(context.Cause(ended), ErrReleased) || len(l.contexts) > 0 {
			t.Errorf("the cause of the first context is %v, and the lease keeps %d contexts", context.Cause(ended), len(l.contexts))
		}
	})
}

func BenchmarkLeaseContext(b *testing.B) {
	began := (&suspensionDetector{}).now()
	keys, opts, err := prepare([]string{"order:1"}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	lease, err := newLease(b.Context(), &fakeGrant{}, keys, opts, began)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		parent, cancel := context.WithCancel(b.Context())
		_ = lease.Context(parent)
		cancel()
	}
}
