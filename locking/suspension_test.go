package locking

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// detecting runs a test in virtual time with a detector whose wall clock is ahead of the bubble's by what wall holds,
// and what takes a lease of it.
func detecting(
	t *testing.T, test func(p *suspensionDetector, wall *atomic.Int64, take func(maxHold time.Duration) *Lease),
) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var wall atomic.Int64
		p := &suspensionDetector{read: wallClock(func() time.Time {
			return time.Now().Round(0).Add(time.Duration(wall.Load()))
		})}
		test(p, &wall, func(maxHold time.Duration) *Lease {
			l, err := newLease(t.Context(), &fakeGrant{began: time.Now()}, []string{"order"},
				Options{TTL: 30 * time.Second, MaxHold: maxHold}, p.now())
			if err != nil {
				t.Fatal(err)
			}
			return l
		})
	})
}

func TestASuspensionEndsAllLeases(t *testing.T) {
	detecting(t, func(_ *suspensionDetector, wall *atomic.Int64, take func(time.Duration) *Lease) {
		leases := []*Lease{take(time.Minute), take(time.Minute), take(time.Hour)}
		time.Sleep(5500 * time.Millisecond)
		wall.Add(int64(2 * time.Minute))
		time.Sleep(suspensionInterval)
		synctest.Wait()
		for i, l := range leases {
			select {
			case <-l.Done():
			default:
				t.Errorf("lease %d goes on %v after its machine was suspended for 2 min", i, suspensionInterval)
			}
			_ = l.Release(t.Context())
		}
	})
}

func TestClocksAreComparedOnlyWhileThereAreLeases(t *testing.T) {
	detecting(t, func(p *suspensionDetector, wall *atomic.Int64, take func(time.Duration) *Lease) {
		_ = take(time.Minute).Release(t.Context())
		time.Sleep(2 * suspensionInterval)
		p.mu.Lock()
		if p.running || len(p.leases) > 0 {
			t.Errorf("running: %v, with %d leases, after the only one was released", p.running, len(p.leases))
		}
		p.mu.Unlock()
		wall.Add(int64(time.Hour)) // before the next lease: it tells nothing of that
		l := take(time.Minute)
		time.Sleep(2 * suspensionInterval)
		if err := l.Err(); err != nil {
			t.Errorf("a lease that began after the suspension: %v", err)
		}
		wall.Add(int64(time.Hour))
		time.Sleep(suspensionInterval)
		synctest.Wait()
		if l.Err() == nil {
			t.Error("a suspension during a later lease goes unnoticed")
		}
		_ = l.Release(t.Context())
	})
}

func TestAClockStepEndsAHangingRenewal(t *testing.T) {
	detecting(t, func(p *suspensionDetector, wall *atomic.Int64, _ func(time.Duration) *Lease) {
		ended := make(chan time.Duration, 1)
		g := &fakeGrant{began: time.Now()}
		g.renew = func(ctx context.Context, n int) error {
			if n > 1 {
				return nil
			}
			sent := time.Now()
			<-ctx.Done()
			ended <- time.Since(sent)
			return context.Cause(ctx)
		}
		l, err := newLease(t.Context(), g, []string{"order"}, Options{TTL: 30 * time.Second, MaxHold: time.Hour}, p.now())
		if err != nil {
			t.Fatal(err)
		}
		for len(g.renewals()) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		wall.Add(int64(5 * time.Millisecond))
		if took := <-ended; took > 10*time.Second {
			t.Errorf("a renewal without an answer was given up after %v, want a third of the TTL", took)
		}
		time.Sleep(2 * time.Second)
		if err := l.Err(); err != nil || len(g.renewals()) < 2 {
			t.Errorf("%d renewals, lease: %v", len(g.renewals()), err)
		}
		_ = l.Release(t.Context())
	})
}
