package locking_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// virtualBackends makes each kind of locker on fake servers in virtual time: two of them, of two processes, and clients
// of the servers.
var virtualBackends = map[string]func(t *testing.T) (a, b locking.Locker, servers []*redis.Client){
	"single": func(t *testing.T) (a, b locking.Locker, servers []*redis.Client) {
		m, client := redistest.Virtual(t)
		return newSingle(t, client, locking.SingleOptions{}),
			newSingle(t, redistest.VirtualClient(t, m), locking.SingleOptions{}), []*redis.Client{client}
	},
	"redlock": func(t *testing.T) (a, b locking.Locker, servers []*redis.Client) {
		var nodes []*redis.Options
		for range 3 {
			_, client := redistest.Virtual(t)
			servers, nodes = append(servers, client), append(nodes, client.Options())
		}
		return newRedlock(t, nodes, unguarded), newRedlock(t, nodes, unguarded), servers
	},
	"gate": func(t *testing.T) (a, b locking.Locker, servers []*redis.Client) {
		m, client := redistest.Virtual(t)
		return locking.NewGate(newSingle(t, client, locking.SingleOptions{}), locking.GateOptions{}),
			locking.NewGate(newSingle(t, redistest.VirtualClient(t, m), locking.SingleOptions{}),
				locking.GateOptions{}), []*redis.Client{client}
	},
}

func onEachBackend(t *testing.T, test func(t *testing.T, a, b locking.Locker, servers []*redis.Client)) {
	t.Helper()
	t.Parallel()
	for name, backend := range virtualBackends {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				a, b, servers := backend(t)
				test(t, a, b, servers)
			})
		})
	}
}

// Another program announces nothing, so the lock is asked for again and again.
func TestWaitPollsTheLockOfAnotherProgram(t *testing.T) {
	onEachBackend(t, func(t *testing.T, a, _ locking.Locker, servers []*redis.Client) {
		for _, server := range servers {
			if err := server.Set(t.Context(), "railtoken:lock:{order}", "not ours", 5*time.Second).Err(); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		lease, err := locking.Wait(t.Context(), a, []string{"order"}, locking.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 5*time.Second || took > 5*time.Second+longestPause {
			t.Errorf("waited for %v, want until the lock expires after 5 s and at most a pause longer", took)
		}
		release(t, lease)
	})
}

// longestPause is the longest one between two attempts.
const longestPause = 760 * time.Millisecond

func TestWaitIsWokenByARelease(t *testing.T) {
	onEachBackend(t, func(t *testing.T, a, b locking.Locker, _ []*redis.Client) {
		for i := range 8 { // not by chance
			key := "order:" + strconv.Itoa(i)
			holder := acquire(t, a, locking.Options{}, key)
			c := inLine(t.Context(), b, locking.Options{}, key)
			time.Sleep(5 * time.Second)
			waits(t, c)
			began := time.Now()
			release(t, holder)
			o := <-c
			if took := o.at.Sub(began); o.err != nil || took > 5*time.Millisecond {
				t.Fatalf("%q: after %v: %v, want a lease at once", key, took, o.err)
			}
			release(t, o.lease)
		}
	})
}

func TestWaitGivesUpWithItsContext(t *testing.T) {
	stopped := errors.New("the caller stopped")
	onEachBackend(t, func(t *testing.T, a, b locking.Locker, _ []*redis.Client) {
		acquire(t, a, locking.Options{Label: "holder"}, "order")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		o := <-waiting(ctx, b, locking.Options{}, "order")
		held, ok := errors.AsType[*locking.HeldError](o.err)
		if o.lease != nil || !errors.Is(o.err, context.DeadlineExceeded) || !errors.Is(o.err, locking.ErrHeld) || !ok ||
			held.Holder.Label != "holder" {
			t.Errorf("lease %v, error %v, want one that matches DeadlineExceeded and ErrHeld and names the holder",
				o.lease, o.err)
		}
		if took := o.at.Sub(began); took != 3*time.Second {
			t.Errorf("gave up after %v, want with the deadline", took)
		}
		stop, cause := context.WithCancelCause(t.Context())
		c := inLine(stop, b, locking.Options{}, "order")
		cause(stopped)
		if o := <-c; !errors.Is(o.err, stopped) || !errors.Is(o.err, locking.ErrHeld) {
			t.Errorf("error %v, want one that matches the cause and ErrHeld", o.err)
		}
	})
}

// plainOrGated runs a test of Wait on a locker in memory and on a gate in front of it.
func plainOrGated(t *testing.T, test func(t *testing.T, inner *ram, l locking.Locker)) {
	t.Helper()
	t.Parallel()
	for _, gated := range []bool{false, true} {
		t.Run(fmt.Sprintf("gate %v", gated), func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				inner := newRAM()
				if gated {
					test(t, inner, locking.NewGate(inner, locking.GateOptions{}))
				} else {
					test(t, inner, inner)
				}
			})
		})
	}
}

func TestWaitAsksForAnAnnouncement(t *testing.T) {
	plainOrGated(t, func(t *testing.T, inner *ram, l locking.Locker) {
		holder := acquire(t, inner, locking.Options{}, "order")
		c := inLine(t.Context(), l, locking.Options{}, "order")
		release(t, holder)
		if !holder.ShouldNotify() {
			t.Error("the holder was not told that a caller waits")
		}
		release(t, (<-c).lease)
	})
}

func TestWaitPausesBetweenItsAttempts(t *testing.T) {
	plainOrGated(t, func(t *testing.T, inner *ram, l locking.Locker) {
		acquire(t, inner, locking.Options{}, "order")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		began := time.Now()
		_, _ = locking.Wait(ctx, l, []string{"order"}, locking.Options{})
		var early int
		last := began
		for _, at := range inner.acquires[1:] {
			if at.Sub(last) > longestPause {
				t.Errorf("a pause of %v", at.Sub(last))
			}
			if last = at; at.Sub(began) < 100*time.Millisecond {
				early++
			}
		}
		if n := len(inner.acquires); early < 4 || n > 100 || n < 35 {
			t.Errorf("%d attempts within 0.1 s and %d in 20 s, want some at first and then two in a second", early, n)
		}
	})
}

func TestWaitIsPatientWithUnreachableServers(t *testing.T) {
	plainOrGated(t, func(t *testing.T, inner *ram, l locking.Locker) {
		began := time.Now()
		inner.fail = func() error {
			switch s := time.Since(began); {
			case s < 7*time.Second || s > 9*time.Second && s < 16*time.Second:
				return locking.ErrUnavailable
			case s < 17*time.Second:
				return &locking.HeldError{Key: "order"} // they answer: patience begins anew
			}
			return nil
		}
		lease, err := locking.Wait(t.Context(), l, []string{"order"}, locking.Options{})
		if took := time.Since(began); err != nil || took < 17*time.Second || took > 17*time.Second+longestPause {
			t.Fatalf("after %v: %v, want a lease after 17 s", took, err)
		}
		release(t, lease)

		began = time.Now()
		inner.fail = func() error { return fmt.Errorf("no route: %w", locking.ErrUnavailable) }
		_, err = locking.Wait(t.Context(), l, []string{"order"}, locking.Options{})
		if took := time.Since(began); !errors.Is(err, locking.ErrUnavailable) || errors.Is(err, locking.ErrHeld) ||
			took < 10*time.Second || took > 10*time.Second+longestPause {
			t.Errorf("after %v: %v, want ErrUnavailable after 10 s", took, err)
		}
	})
}

func TestWaitReturnsAnyOtherErrorAtOnce(t *testing.T) {
	plainOrGated(t, func(t *testing.T, inner *ram, l locking.Locker) {
		broken := errors.New("broken")
		inner.fail = func() error { return broken }
		began := time.Now()
		if _, err := locking.Wait(t.Context(), l, []string{"order"}, locking.Options{}); !errors.Is(err, broken) ||
			time.Since(began) != 0 {
			t.Errorf("after %v: %v, want the error at once", time.Since(began), err)
		}
		if inner.asked() != 1 {
			t.Errorf("%d attempts, want one", inner.asked())
		}
	})
}

func TestDoWaitsAndReleases(t *testing.T) {
	plainOrGated(t, func(t *testing.T, inner *ram, l locking.Locker) {
		failed := errors.New("the work failed")
		holder := acquire(t, l, locking.Options{}, "order")
		time.AfterFunc(3*time.Second, func() { release(t, holder) })
		began := time.Now()
		for i, want := range []error{nil, failed} {
			var during context.Context
			parent := context.WithValue(t.Context(), key{}, "a value")
			err := locking.Do(parent, l, []string{"order"}, locking.Options{},
				func(ctx context.Context, lease *locking.Lease) error {
					if took := time.Since(began); i == 0 && took < 3*time.Second {
						t.Errorf("it began after %v, before the release", took)
					}
					if during = ctx; ctx.Err() != nil || ctx.Value(key{}) != "a value" || tokenOf(t, lease) == 0 ||
						!inner.holds("order") {
						t.Errorf("context %v, lease %v", ctx.Err(), lease.Err())
					}
					return want
				})
			if !errors.Is(err, want) || want == nil && err != nil || errors.Is(err, locking.ErrLost) {
				t.Errorf("error %v, want %v", err, want)
			}
			if !errors.Is(context.Cause(during), locking.ErrReleased) || inner.holds("order") {
				t.Errorf("after it the context has ended by %v, the key is held: %v", context.Cause(during),
					inner.holds("order"))
			}
		}
	})
}

// key is that of a value in a context.
type key struct{}

func TestDoSaysThatALockerIsMissing(t *testing.T) {
	t.Parallel()
	defer func() {
		if p := recover(); p != "locking: Do needs a Locker" {
			t.Errorf("it panics with %v", p)
		}
	}()
	_ = locking.Do(t.Context(), nil, []string{"a"}, locking.Options{}, func(context.Context, *locking.Lease) error { return nil })
}

func TestDoReleasesAfterAPanic(t *testing.T) {
	plainOrGated(t, func(t *testing.T, inner *ram, l locking.Locker) {
		func() {
			defer func() {
				if p := recover(); p != "no idea" {
					t.Errorf("recovered %v, want the panic", p)
				}
			}()
			_ = locking.Do(t.Context(), l, []string{"order"}, locking.Options{},
				func(context.Context, *locking.Lease) error { panic("no idea") })
		}()
		if inner.holds("order") {
			t.Error("the key is held")
		}
		release(t, acquire(t, l, locking.Options{}, "order"))
	})
}

func TestDoWithoutTheKeysDoesNothing(t *testing.T) {
	plainOrGated(t, func(t *testing.T, _ *ram, l locking.Locker) {
		acquire(t, l, locking.Options{}, "order")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := locking.Do(ctx, l, []string{"order"}, locking.Options{}, func(context.Context, *locking.Lease) error {
			t.Error("it has begun")
			return nil
		})
		if !errors.Is(err, locking.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want ErrHeld and DeadlineExceeded", err)
		}
	})
}

func TestDoReportsALossUnlessCommitted(t *testing.T) {
	failed := errors.New("the work failed")
	for name, tt := range map[string]struct {
		commit bool
		result error
	}{
		"not committed":         {false, nil},
		"not committed, failed": {false, failed},
		"committed":             {true, nil},
		"committed, failed":     {true, failed},
	} {
		t.Run(name, func(t *testing.T) {
			plainOrGated(t, func(t *testing.T, inner *ram, l locking.Locker) {
				err := locking.Do(t.Context(), l, []string{"order"}, locking.Options{TTL: 9 * time.Second},
					func(ctx context.Context, lease *locking.Lease) error {
						inner.set(func() { delete(inner.owners, "order") })
						began := time.Now()
						<-ctx.Done()
						if took := time.Since(began); !errors.Is(context.Cause(ctx), locking.ErrLost) ||
							took > 4*time.Second {
							t.Errorf("after %v the context ended by %v, want ErrLost at the first renewal", took,
								context.Cause(ctx))
						}
						if tt.commit {
							lease.MarkCommitted()
						}
						return tt.result
					})
				if errors.Is(err, locking.ErrLost) == tt.commit {
					t.Errorf("error %v, committed %v", err, tt.commit)
				}
				if tt.result != nil && !errors.Is(err, tt.result) || tt.commit && tt.result == nil && err != nil {
					t.Errorf("error %v, want that of the work too: %v", err, tt.result)
				}
			})
		})
	}
}

func TestAFailedReleaseIsNoErrorOfTheWork(t *testing.T) {
	plainOrGated(t, func(t *testing.T, inner *ram, l locking.Locker) {
		inner.failRelease = errors.New("no answer")
		err := locking.Do(t.Context(), l, []string{"order"}, locking.Options{},
			func(context.Context, *locking.Lease) error { return nil })
		if err != nil || inner.releases != 1 {
			t.Errorf("error %v after %d releases", err, inner.releases)
		}
		synctest.Wait()
	})
}
