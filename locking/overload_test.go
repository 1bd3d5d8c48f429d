package locking_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/internal/testing/testserver"
	"github.com/railtoken/railtoken/locking"
)

// How long servers are flooded, and how many leases are held meanwhile: scripts/overload.sh sets more.
var (
	floodTime = flag.Duration("flood", 4*time.Second,
		"how long servers are flooded with callers; from 20s on their rates are compared")
	heldCount = flag.Int("held", 200, "how many leases are held during a flood")
	heldTTL   = flag.Duration("heldttl", 10*time.Second, "their TTL")
)

// window is what callers have got within one second of a flood.
type window struct {
	pairs, failed int64
	stopped       bool // servers were stopped within it
}

// flood lets callers take and release keys of their own, without a pause also after a failure, and counts what they get
// in each second. Servers are stopped for a while in the middle.
func flood(t *testing.T, l locking.Locker, callers int, during time.Duration, stop []*redistest.Server) []window {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var pairs, failed atomic.Int64
	var crowd sync.WaitGroup
	for i := range callers {
		crowd.Go(func() {
			keys := []string{fmt.Sprint("flood:", i)}
			for ctx.Err() == nil {
				lease, err := l.Acquire(ctx, keys, locking.Options{})
				if err == nil {
					err = lease.Release(ctx)
				}
				switch {
				case err == nil:
					pairs.Add(1)
				case errors.Is(err, locking.ErrHeld), errors.Is(err, locking.ErrUnavailable), ctx.Err() != nil:
					failed.Add(1)
				default:
					t.Errorf("key %q: %v", keys, err)
					return
				}
			}
		})
	}
	windows := make([]window, during/time.Second)
	for i := range windows {
		if i == len(windows)/2 {
			windows[i].stopped = true
			for _, s := range stop {
				s.Pause()
			}
			<-time.After(300 * time.Millisecond)
			for _, s := range stop {
				s.Resume()
			}
		}
		<-time.After(time.Second) // a whole one, however long the stop has taken
		windows[i].pairs, windows[i].failed = pairs.Swap(0), failed.Swap(0)
	}
	cancel()
	crowd.Wait()
	return windows
}

// story tells of each second.
func story(windows []window) string {
	var b strings.Builder
	for i, w := range windows {
		fmt.Fprintf(&b, "\n%3d s %7d pairs %7d failures", i+1, w.pairs, w.failed)
		if w.stopped {
			b.WriteString("  servers stopped for 300 ms")
		}
	}
	return b.String()
}

// rate returns the median of the seconds in which no server was stopped.
func rate(windows []window) int64 {
	var rates []int64
	for _, w := range windows {
		if !w.stopped {
			rates = append(rates, w.pairs)
		}
	}
	slices.Sort(rates)
	return rates[len(rates)/2]
}

// goesOn checks that there was progress in each second in which no server was stopped.
func goesOn(t *testing.T, windows []window) {
	t.Helper()
	for i, w := range windows {
		if w.pairs == 0 && !w.stopped {
			t.Errorf("no caller got anything in second %d", i+1)
		}
	}
}

// overloaded are the lockers that are flooded.
var overloaded = map[string]func(t *testing.T) (locking.Locker, []*redistest.Server){
	"single": func(t *testing.T) (locking.Locker, []*redistest.Server) {
		server := redistest.Start(t)
		return newSingle(t, server.Client(t, deadlines), locking.SingleOptions{}), []*redistest.Server{server}
	},
	"redlock": func(t *testing.T) (locking.Locker, []*redistest.Server) {
		servers, nodes := startNodes(t, 5)
		return newRedlock(t, nodes, locking.RedlockOptions{Guard: locking.GuardOff}), servers
	},
}

// share divides numbers below n among some workers.
func share(n int, work func(i int)) {
	var next atomic.Int64
	var crowd sync.WaitGroup
	for range 128 {
		crowd.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				work(int(i))
			}
		})
	}
	crowd.Wait()
}

// holding takes leases, which are released with the test.
func holding(t *testing.T, l locking.Locker, leases int, ttl time.Duration) []*locking.Lease {
	t.Helper()
	held := make([]*locking.Lease, leases)
	began := time.Now()
	share(leases, func(i int) {
		for held[i] == nil {
			lease, err := l.Acquire(t.Context(), []string{fmt.Sprint("held:", i)}, locking.Options{TTL: ttl})
			if err == nil {
				held[i] = lease
			} else if time.Since(began) > time.Duration(leases)*time.Millisecond+patience {
				t.Errorf("held:%d: %v", i, err)
				return
			}
		}
	})
	t.Cleanup(func() {
		share(leases, func(i int) {
			if held[i] != nil {
				_ = held[i].Release(context.Background())
			}
		})
	})
	if t.Failed() {
		t.FailNow()
	}
	return held
}

// 1 536 callers got 632 pairs in the first second and none in any later one, with calls that their callers had given
// up.
func TestOverloadLosesNoLease(t *testing.T) {
	testserver.LeaveToLong(t)
	for name, start := range overloaded {
		t.Run(name, func(t *testing.T) {
			l, servers := start(t)
			var before int64
			if *floodTime >= 20*time.Second {
				windows := flood(t, l, 512, *floodTime, servers)
				before = rate(windows)
				t.Logf("512 callers: %d pairs/s%s", before, story(windows))
				goesOn(t, windows)
			}
			began := time.Now()
			held := holding(t, l, *heldCount, *heldTTL)
			t.Logf("%d leases of %v taken in %v", len(held), *heldTTL, time.Since(began).Round(time.Millisecond))
			windows := flood(t, l, 2048, *floodTime, servers)
			t.Logf("2048 callers: %d pairs/s%s", rate(windows), story(windows))
			goesOn(t, windows)
			gone := 0
			var why error
			for _, lease := range held {
				if err := lease.Err(); err != nil {
					gone, why = gone+1, err
				}
			}
			if gone > 0 {
				t.Errorf("%d of %d leases are lost: %v", gone, len(held), why)
			}
			if rate(windows) < before/2 {
				t.Errorf("%d pairs/s of 2048 callers, less than half of the %d of 512", rate(windows), before)
			}
		})
	}
}
