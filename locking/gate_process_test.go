package locking_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// otherProcesses returns gates on one fake server, each with connections of its own.
func otherProcesses(t *testing.T, n int, opts locking.GateOptions) []*locking.Gate {
	t.Helper()
	return processesAt(t, opts, make([]time.Duration, n)...)
}

// processesAt returns such gates, whose script calls take so long to arrive at the server.
func processesAt(t *testing.T, opts locking.GateOptions, distances ...time.Duration) []*locking.Gate {
	t.Helper()
	m, _ := redistest.Virtual(t)
	gates := make([]*locking.Gate, len(distances))
	for i, distance := range distances {
		client := redistest.VirtualClient(t, m)
		client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if strings.HasPrefix(cmd.Name(), "eval") { // a new connection's commands are sent under a mutex
				time.Sleep(distance)
			}
			return next(ctx, cmd)
		}))
		gates[i] = locking.NewGate(newSingle(t, client, locking.SingleOptions{}), opts)
	}
	return gates
}

func TestANotificationWakesTheFirstWaiter(t *testing.T) {
	virtually(t, func(t *testing.T) {
		gates := otherProcesses(t, 2, locking.GateOptions{})
		for i := range 10 {
			key := "order:" + strconv.Itoa(i)
			holder := acquire(t, gates[0], locking.Options{}, key)
			first := inLine(t.Context(), gates[1], locking.Options{}, key)
			second := inLine(t.Context(), gates[1], locking.Options{}, key)
			time.Sleep(5 * time.Second)
			waits(t, first)
			began := time.Now()
			release(t, holder)
			o := <-first
			if o.err != nil {
				t.Fatal(o.err)
			}
			if took := o.at.Sub(began); took > 2*time.Millisecond {
				t.Errorf("woken after %v, want at once", took)
			}
			waits(t, second)
			release(t, o.lease)
			release(t, got(t, second))
		}
	})
}

func TestAGateTellsOfReleasesElsewhere(t *testing.T) {
	virtually(t, func(t *testing.T) {
		gates := otherProcesses(t, 2, locking.GateOptions{})
		released, stop, err := gates[1].Watch(t.Context(), []string{"order"})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		synctest.Wait()
		holder := acquire(t, gates[0], locking.Options{}, "order")
		if _, err := gates[1].Acquire(t.Context(), []string{"order"},
			locking.Options{Notify: time.Minute}); !errors.Is(err, locking.ErrHeld) {
			t.Fatal(err)
		}
		release(t, holder)
		synctest.Wait()
		select {
		case <-released:
		default:
			t.Error("no notice")
		}
		if !holder.ShouldNotify() {
			t.Error("the holder was not told of the other process")
		}
	})
}

// holdBriefly waits for the key, counts the holder, and holds for a millisecond.
func holdBriefly(t *testing.T, gate *locking.Gate, holders *atomic.Int64) {
	t.Helper()
	lease, err := locking.Wait(t.Context(), gate, []string{"order"}, locking.Options{})
	if err != nil {
		t.Error(err)
		return
	}
	holders.Add(1)
	time.Sleep(time.Millisecond)
	release(t, lease)
}

// After so many hand-offs the lock goes back, and the process that waits for it comes first.
func TestAnotherProcessGetsItsTurn(t *testing.T) {
	t.Parallel()
	for name, tt := range handOffs {
		if tt.holders > 16 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				gates := otherProcesses(t, 2, locking.GateOptions{HandOffs: tt.option})
				holder := acquire(t, gates[0], locking.Options{}, "order")
				other := inLine(t.Context(), gates[1], locking.Options{}, "order")
				waits(t, other)
				var here atomic.Int64
				var wg sync.WaitGroup
				for range 60 {
					wg.Go(func() {
						holdBriefly(t, gates[0], &here)
					})
				}
				synctest.Wait()
				release(t, holder)
				o := <-other
				if o.err != nil {
					t.Fatal(o.err)
				}
				if n := int(here.Load()); n != tt.holders-1 {
					t.Errorf("%d of the holder's own process came first, want %d", n, tt.holders-1)
				}
				release(t, o.lease)
				wg.Wait()
			})
		})
	}
}

// A process whose callers come at any time, and are notified of its own releases, must still let one go first that is
// farther from the server.
func TestAFarProcessGetsItsTurnAfterTheHandOffs(t *testing.T) {
	virtually(t, func(t *testing.T) {
		gates := processesAt(t, locking.GateOptions{}, 0, 600*time.Microsecond)
		holder := acquire(t, gates[1], locking.Options{}, "order")
		var here atomic.Int64
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for range 3 {
					holdBriefly(t, gates[0], &here)
				}
			})
		}
		synctest.Wait() // the first of them was refused, and watches
		wg.Go(func() {
			for range 300 {
				wg.Go(func() { holdBriefly(t, gates[0], &here) })
				time.Sleep(100 * time.Microsecond)
			}
		})
		release(t, holder)
		o := <-waiting(t.Context(), gates[1], locking.Options{}, "order")
		if o.err != nil {
			t.Fatal(o.err)
		}
		if n := here.Load(); n != 16 {
			t.Errorf("%d of the near process came first, want 16", n)
		}
		release(t, o.lease)
		wg.Wait()
	})
}

// crowd lets many waiters of several processes work on one key, and checks what must hold of all of them.
func crowd(t *testing.T, gates []*locking.Gate, waiters, rounds int, hold, bound time.Duration) {
	var mu sync.Mutex
	var last int64
	var longest time.Duration
	holders := 0
	begin := func(token int64, waited time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		holders++
		if holders != 1 {
			t.Errorf("%d holders", holders)
		}
		if token <= last {
			t.Errorf("token %d after %d", token, last)
		}
		last, longest = token, max(longest, waited)
	}
	end := func() {
		mu.Lock()
		defer mu.Unlock()
		holders--
	}
	var wg sync.WaitGroup
	for i, gate := range gates {
		for j := range waiters {
			wg.Go(func() {
				for range rounds {
					began := time.Now()
					err := locking.Do(t.Context(), gate, []string{"order"}, locking.Options{Label: fmt.Sprint(i, "/", j)},
						func(ctx context.Context, lease *locking.Lease) error {
							token, err := lease.Fence(ctx)
							if err != nil {
								return err
							}
							begin(token, time.Since(began))
							defer end()
							time.Sleep(hold)
							return ctx.Err()
						})
					if err != nil {
						t.Errorf("%d/%d: %v", i, j, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if longest > bound {
		t.Errorf("the longest wait was %v, more than %v", longest, bound)
	}
	t.Logf("the longest wait was %v", longest)
}

func TestNoCallerWaitsForLongInACrowd(t *testing.T) {
	virtually(t, func(t *testing.T) {
		crowd(t, otherProcesses(t, 4, locking.GateOptions{}), 16, 10, time.Millisecond, 2*time.Second)
	})
}

func TestACrowdOnARealServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, opts := range map[string]locking.GateOptions{"hand-offs": {}, "none": {HandOffs: -1}} {
		t.Run(name, func(t *testing.T) {
			gates := make([]*locking.Gate, 4)
			for i := range gates {
				gates[i] = locking.NewGate(newSingle(t,
					server.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true }), locking.SingleOptions{}), opts)
			}
			crowd(t, gates, 16, 10, 100*time.Microsecond, patience)
		})
	}
}
