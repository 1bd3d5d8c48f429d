package locking_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// handOffs are the values of the option that are tested, with how many holders may follow each other.
var handOffs = map[string]struct{ option, holders int }{
	"by default": {0, 16}, "three": {3, 4}, "none": {-1, 1}, "one": {1, 2}, "more than there may be": {1000, 256},
}

func TestWaitersComeInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	const n = 40
	for name, tt := range handOffs {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				inner := newRAM()
				gate := locking.NewGate(inner, locking.GateOptions{HandOffs: tt.option})
				first := acquire(t, gate, locking.Options{}, "order")
				var mu sync.Mutex
				var order []int
				tokens := []int64{tokenOf(t, first)}
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						lease, err := locking.Wait(t.Context(), gate, []string{"order"}, locking.Options{})
						if err != nil {
							t.Errorf("wait: %v", err)
							return
						}
						mu.Lock()
						order, tokens = append(order, i), append(tokens, tokenOf(t, lease))
						mu.Unlock()
						time.Sleep(time.Millisecond)
						release(t, lease)
					})
					synctest.Wait()
				}
				release(t, first)
				wg.Wait()
				if !slices.IsSorted(order) || len(order) != n {
					t.Errorf("order %v, want that of arrival", order)
				}
				if !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != n+1 {
					t.Errorf("tokens %v do not grow strictly", tokens)
				}
				if want := (n + 1 + tt.holders - 1) / tt.holders; inner.asked() != want {
					t.Errorf("the servers were asked %d times, want %d", inner.asked(), want)
				}
			})
		})
	}
}

func TestAWaiterThatGivesUpLeavesTheLine(t *testing.T) {
	t.Parallel()
	stopped := errors.New("the caller stopped")
	for name, tt := range map[string]struct {
		elsewhere bool // the holder is another process
		who       int  // gives up
		cause     error
	}{
		"the first, behind a holder here":         {false, 0, stopped},
		"the second, behind a holder here":        {false, 1, stopped},
		"the first, by its deadline":              {false, 0, context.DeadlineExceeded},
		"the last, by its deadline":               {false, 2, context.DeadlineExceeded},
		"the first, behind one elsewhere":         {true, 0, stopped},
		"the second, behind one elsewhere":        {true, 1, stopped},
		"the last, by its deadline, behind there": {true, 2, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				inner := newRAM()
				gate := locking.NewGate(inner, locking.GateOptions{})
				var holder locking.Locker = gate
				if tt.elsewhere {
					holder = locking.NewGate(inner, locking.GateOptions{})
				}
				lease := acquire(t, holder, locking.Options{Label: "holder"}, "order", "other")
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				ctx, stop := context.WithTimeout(ctx, 3*time.Second)
				defer stop()
				var line []<-chan outcome
				for i := range 3 {
					c := t.Context()
					if i == tt.who {
						c = ctx
					}
					line = append(line, inLine(c, gate, locking.Options{}, "order"))
				}
				time.Sleep(2 * time.Second)
				for _, c := range line {
					waits(t, c)
				}
				began := time.Now()
				if errors.Is(tt.cause, stopped) {
					cancel(stopped)
				}
				o := <-line[tt.who]
				if o.lease != nil || !errors.Is(o.err, tt.cause) || !errors.Is(o.err, locking.ErrHeld) {
					t.Fatalf("lease %v, error %v, want one that matches ErrHeld and %v", o.lease, o.err, tt.cause)
				}
				if held, ok := errors.AsType[*locking.HeldError](o.err); !ok || held.Key != "order" ||
					held.Holder.Label != "holder" {
					t.Errorf("error %v, want the key and its holder", o.err)
				}
				if took := o.at.Sub(began); took > time.Second {
					t.Errorf("gave up after %v", took)
				}
				release(t, lease)
				time.Sleep(time.Second) // another process has to ask again
				for i, c := range line {
					if i != tt.who {
						release(t, got(t, c))
					}
				}
				release(t, acquire(t, gate, locking.Options{}, "order"))
			})
		})
	}
}

func TestAWaiterWhoseContextHasEndedGetsNothing(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 { // a select is fair: both of its ways must do
			if lease, err := locking.Wait(ctx, gate, []string{"order"}, locking.Options{}); lease != nil ||
				!errors.Is(err, context.Canceled) {
				t.Fatalf("lease %v, error %v, want Canceled", lease, err)
			}
		}
		release(t, acquire(t, gate, locking.Options{}, "order"))
	})
}

func TestOverlappingKeySetsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*testing.T, func(*testing.T)){
		"in virtual time": func(t *testing.T, test func(*testing.T)) { synctest.Test(t, test) },
		"in real time":    func(t *testing.T, test func(*testing.T)) { test(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T) {
				inner := newRAM()
				gates := []*locking.Gate{
					locking.NewGate(inner, locking.GateOptions{}),
					locking.NewGate(inner, locking.GateOptions{HandOffs: 2}),
				}
				names := []string{"a", "b", "c", "d", "e"}
				var busy, count [5]atomic.Int64
				var last [5]atomic.Int64
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var wg sync.WaitGroup
				for range 24 {
					wg.Go(func() {
						for range 25 {
							n := rand.Perm(len(names))[:1+rand.IntN(3)]
							keys := make([]string, len(n))
							for i, j := range n {
								keys[i] = names[j]
							}
							impatient, length := rand.IntN(6) == 0, time.Minute
							if impatient {
								length = time.Duration(rand.IntN(int(3 * time.Millisecond)))
							}
							patient, stop := context.WithTimeout(ctx, length)
							lease, err := locking.Wait(patient, gates[rand.IntN(2)], keys, locking.Options{})
							stop()
							if err != nil {
								if !impatient || ctx.Err() != nil {
									t.Errorf("wait for %q: %v", keys, err)
								}
								continue
							}
							for i, j := range n {
								if busy[j].Add(1) != 1 {
									t.Errorf("two holders of %q", keys[i])
								}
								count[j].Add(1)
								token, err := lease.FenceOf(ctx, keys[i])
								if before := last[j].Swap(token); err != nil || token <= before {
									t.Errorf("token of %q is %d after %d: %v", keys[i], token, before, err)
								}
							}
							time.Sleep(time.Duration(rand.IntN(int(200 * time.Microsecond))))
							for _, j := range n {
								busy[j].Add(-1)
							}
							release(t, lease)
						}
					})
				}
				wg.Wait()
				for j := range names {
					if inner.holds(names[j]) || count[j].Load() == 0 {
						t.Errorf("%q: held %v, %d leases", names[j], inner.holds(names[j]), count[j].Load())
					}
				}
			})
		})
	}
}

func TestTheOrderOfArrivalHoldsForEachKey(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		holder := acquire(t, gate, locking.Options{}, "a")
		ab := inLine(t.Context(), gate, locking.Options{}, "a", "b")
		b := inLine(t.Context(), gate, locking.Options{}, "b")
		bc := inLine(t.Context(), gate, locking.Options{}, "b", "c")
		c := inLine(t.Context(), gate, locking.Options{}, "c")
		a := inLine(t.Context(), gate, locking.Options{}, "a")
		d := inLine(t.Context(), gate, locking.Options{}, "d")
		release(t, got(t, d)) // has nothing to do with them
		for _, ch := range []<-chan outcome{ab, b, bc, c, a} {
			waits(t, ch)
		}
		release(t, holder)
		second := got(t, ab)
		for _, ch := range []<-chan outcome{b, bc, c, a} {
			waits(t, ch)
		}
		release(t, second)
		third, other := got(t, b), got(t, a)
		waits(t, bc)
		waits(t, c)
		release(t, third)
		fourth := got(t, bc)
		waits(t, c)
		release(t, fourth)
		release(t, got(t, c))
		release(t, other)
	})
}

// A waiter that leaves the line lets those pass who only stood behind it.
func TestAWaiterThatGivesUpBlocksNoOther(t *testing.T) {
	virtually(t, func(t *testing.T) {
		gate := locking.NewGate(newRAM(), locking.GateOptions{})
		acquire(t, gate, locking.Options{}, "a")
		ctx, cancel := context.WithCancel(t.Context())
		ab := inLine(ctx, gate, locking.Options{}, "a", "b")
		b := inLine(t.Context(), gate, locking.Options{}, "b")
		waits(t, b)
		cancel()
		if o := <-ab; !errors.Is(o.err, context.Canceled) || !errors.Is(o.err, locking.ErrHeld) {
			t.Errorf("error %v, want Canceled and ErrHeld", o.err)
		}
		release(t, got(t, b))
	})
}
