package locking_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// withoutChannels are the rules of a user who may do everything but use channels, as is the default since Redis 7.
var withoutChannels = []string{"~*", "+@all", "resetchannels"}

// handRound makes callers wait for a few keys, several for each and each one 20 times. It returns the errors of all
// calls.
func handRound(t *testing.T, l locking.Locker, callers int) []error {
	t.Helper()
	failed := make([][]error, callers)
	var wg sync.WaitGroup
	for i := range failed {
		wg.Go(func() {
			for range 20 {
				lease, err := locking.Wait(t.Context(), l, []string{fmt.Sprint("order:", i%(callers/4))},
					locking.Options{})
				if err == nil {
					err = lease.Release(t.Context())
				}
				if err != nil {
					failed[i] = append(failed[i], err)
				}
			}
		})
	}
	wg.Wait()
	return slices.Concat(failed...)
}

func TestAUserWithoutChannelsLosesNoLease(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t, server.User(t, "worker", withoutChannels...), deadlines),
		locking.SingleOptions{})
	for _, callers := range []int{4, 32} { // one by one, and in batches
		if errs := handRound(t, l, callers); len(errs) > 0 {
			t.Errorf("%d of %d calls failed: %v", len(errs), 20*callers, errs[0])
		}
	}
}

func TestRedlockUserWithoutChannelsLosesNoLease(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	for i, s := range servers {
		s.User(t, "worker", withoutChannels...)(nodes[i])
	}
	if errs := handRound(t, newRedlock(t, nodes, unguarded), 4); len(errs) > 0 {
		t.Errorf("%d of 80 calls failed: %v", len(errs), errs[0])
	}
}

// Its subscriptions are refused, so it looks for itself: no more often than a caller who is told of nothing. Its pauses
// are drawn: 50 ms at first, longer by half each time, up to 0.5 s, and each of them by up to half shorter or longer.
func TestAWaiterWithoutChannelsLooksForItself(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	l := newSingle(t, server.Client(t, server.User(t, "worker", withoutChannels...), deadlines),
		locking.SingleOptions{})
	lease := acquire(t, l, locking.Options{}, "order:1")
	before := commands(t, admin)
	began := time.Now()
	got := make(chan error, 1)
	go func() {
		lease, err := locking.Wait(t.Context(), l, []string{"order:1"}, locking.Options{})
		if err == nil {
			err = lease.Release(t.Context())
		}
		got <- err
	}()
	await(t, "the waiter has looked ten times", func() bool {
		return commands(t, admin)["evalsha"]-before["evalsha"] >= 10
	})
	var least time.Duration
	for i, pause := 0, 50*time.Millisecond; i < 9; i, pause = i+1, min(pause*3/2, 500*time.Millisecond) {
		least += pause / 2
	}
	if took := time.Since(began); took < least {
		t.Errorf("ten looks within %v, at least %v wanted: it spins", took, least)
	}
	if n := commands(t, admin)["subscribe"] - before["subscribe"]; n > 3 {
		t.Errorf("%d subscriptions were tried", n)
	}
	release(t, lease)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// commands returns how often each command was called or refused.
func commands(t testing.TB, admin *redis.Client) map[string]int {
	t.Helper()
	info, err := admin.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for name, stat := range info["Commandstats"] {
		var calls, rejected, ignored int
		var f float64
		_, _ = fmt.Sscanf(stat, "calls=%d,usec=%d,usec_per_call=%g,rejected_calls=%d", &calls, &ignored, &f, &rejected)
		count[name[len("cmdstat_"):]] = calls + rejected
	}
	return count
}
