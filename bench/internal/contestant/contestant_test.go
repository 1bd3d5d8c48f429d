package contestant_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/internal/redistest"
)

func TestEveryPairTakesTheKeyAndGivesItBack(t *testing.T) {
	t.Parallel()
	for _, kind := range contestant.OneNode {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			servers, locks := open(t, kind, 1)
			for range 3 {
				if err := locks.Pair(t.Context(), "order:1"); err != nil {
					t.Fatal(err)
				}
			}
			mustBeFree(t, servers)
		})
	}
}

func TestEveryPairOnSeveralServersTakesTheKeyOnAMajority(t *testing.T) {
	t.Parallel()
	for _, kind := range contestant.FiveNodes {
		if kind.Aged > 0 {
			continue // a test does not wait until its servers are old enough
		}
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			servers, locks := open(t, kind, 3)
			for i := range 20 { // each with a key of its own: some release in the background
				if err := locks.Pair(t.Context(), strconv.Itoa(i)); err != nil {
					t.Fatal(err)
				}
			}
			took := 0
			for _, s := range servers {
				info, err := s.Client(t).InfoMap(t.Context(), "commandstats").Result()
				if err != nil {
					t.Fatal(err)
				}
				if info["Commandstats"]["cmdstat_set"] != "" {
					took++
				}
			}
			if took < 2 { // some call the last one off when they have enough
				t.Errorf("%d of 3 servers were asked", took)
			}
		})
	}
}

func TestEveryContestantExcludesTheOthersAndWaits(t *testing.T) {
	t.Parallel()
	for _, kind := range contestant.Contended {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			servers, locks := open(t, kind, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			var held, done atomic.Int32
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					err := locks.Do(ctx, "order:1", func() {
						if held.Add(1) > 1 {
							t.Error("two hold the key")
						}
						runtime.Gosched() // the others have their chance to come in too
						held.Add(-1)
						done.Add(1)
					})
					// A waiter of rueidislock can miss the release, and then waits on.
					if err != nil && kind.Name != contestant.NameRueidislock {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if done.Load() != 4 && kind.Name != contestant.NameRueidislock || done.Load() == 0 {
				t.Errorf("%d of 4 got the key", done.Load())
			}
			mustBeFree(t, servers)
		})
	}
}

func TestEveryContestantStopsWaitingWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	for _, kind := range contestant.Contended {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			_, locks := open(t, kind, 1)
			err := locks.Do(t.Context(), "order:1", func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				if err := locks.Do(ctx, "order:1", func() { t.Error("two hold the key") }); err == nil {
					t.Error("a wait without end has no error")
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func open(t *testing.T, kind contestant.Kind, n int) ([]*redistest.Server, contestant.Locker) {
	t.Helper()
	var servers []*redistest.Server
	var addrs []string
	for range n {
		s := redistest.Start(t)
		servers = append(servers, s)
		addrs = append(addrs, s.Addr())
	}
	locks, err := kind.Open(addrs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return servers, locks
}

// mustBeFree fails when a server holds a key with an end that is a lock's: a fence counter lives longer.
func mustBeFree(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		client := s.Client(t)
		keys, err := client.Keys(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if ttl := client.PTTL(t.Context(), key).Val(); ttl <= contestant.TTL {
				t.Errorf("%s still holds %s for %v", s.Addr(), key, ttl)
			}
		}
	}
}
