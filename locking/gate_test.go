package locking_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/redistest"
	"github.com/railtoken/railtoken/locking"
)

// ram is a Locker in memory that counts what it is asked and can be told to fail. It announces nothing.
type ram struct {
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

func newRAM() *ram { return &ram{owners: map[string]*ramGrant{}, tokens: map[string]int64{}} }

func (r *ram) Acquire(ctx context.Context, keys []string, opts locking.Options) (*locking.Lease, error) {
	keys, opts, err := locking.Prepare(keys, opts)
	if err != nil {
		return nil, err
	}
	began := locking.Now()
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
	for _, key := range keys {
		if held := r.owners[key]; held != nil && now.Before(held.end) {
			held.contended = held.contended || opts.Interest > 0
			return nil, &locking.HeldError{Key: key, Holder: locking.Holder{
				Label: held.label, Since: held.since, Fence: r.tokens[key], Remaining: held.end.Sub(now),
			}}
		}
	}
	g := &ramGrant{in: r, keys: keys, block: opts.Block, label: opts.Label, since: now, end: now.Add(opts.TTL)}
	for _, key := range keys {
		g.tokens = append(g.tokens, r.tokens[key]+1)
		r.tokens[key] += int64(opts.Block)
		r.owners[key] = g
	}
	return locking.NewLease(g, keys, opts, began)
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

// holds reports whether somebody has the key.
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
	contended  bool
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
	return g.contended, err
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

// handOns are the values of the option that are tested, with how many holders may follow each other.
var handOns = map[string]struct{ option, holders int }{
	"by default": {0, 16}, "three": {3, 4}, "none": {-1, 1}, "one": {1, 2}, "more than there may be": {1000, 256},
}

func TestWaitersComeInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	const n = 40
	for name, tt := range handOns {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				inner := newRAM()
				gate := locking.NewGate(inner, locking.GateOptions{HandOns: tt.option})
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

func TestALeaseIsHandedOnWithTheNextTokenAndNoTraffic(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		keys := []string{"order:1", "order:2"}
		inner.tokens["order:2"] = 1000
		first := acquire(t, gate, locking.Options{Label: "first"}, keys...)
		before := tokenOf(t, first)
		ctx := first.Context(t.Context())
		next := inLine(t.Context(), gate, locking.Options{Label: "second"}, "order:2", "order:1", "order:2")
		waits(t, next)
		calls := inner.calls()
		release(t, first)
		second := got(t, next)
		if n := inner.calls() - calls; n != 0 {
			t.Errorf("%d calls for handing on, want none", n)
		}
		if token := tokenOf(t, second); token != before+1 {
			t.Errorf("token %d after %d, want the next one", token, before)
		}
		if token, err := second.FenceOf(t.Context(), "order:2"); token != 1002 || err != nil {
			t.Errorf("token of the other key %d, %v, want 1002", token, err)
		}
		if !slices.Equal(second.Keys(), keys) {
			t.Errorf("keys %q, want %q", second.Keys(), keys)
		}
		if cause := context.Cause(ctx); !errors.Is(cause, locking.ErrReleased) || !errors.Is(first.Err(), locking.ErrReleased) {
			t.Errorf("the old lease ended by %v and %v, want ErrReleased", cause, first.Err())
		}
		select {
		case <-first.Done():
		default:
			t.Error("Done of the old lease is open")
		}
		if err := first.Renew(t.Context()); !errors.Is(err, locking.ErrReleased) {
			t.Errorf("renewal of the old lease: %v, want ErrReleased", err)
		}
		if err := first.Release(t.Context()); err != nil || second.Err() != nil || !inner.holds("order:1") {
			t.Errorf("a second release of the old lease: %v; the new lease: %v", err, second.Err())
		}
		if held := refused(t, gate, "order:2"); held.Label != "second" {
			t.Errorf("held by %q, want by the second", held.Label)
		}
		release(t, second)
		if inner.holds("order:1") || inner.holds("order:2") {
			t.Error("the keys are not released")
		}
	})
}

func TestALeaseThatIsHandedOnLivesItsOwnLife(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		opts := locking.Options{TTL: 30 * time.Second, MaxHold: time.Minute}
		first := acquire(t, gate, opts, "order")
		next := inLine(t.Context(), gate, opts, "order")
		time.Sleep(35 * time.Second)
		release(t, first)
		second := got(t, next)
		began, renewals := time.Now(), inner.renewed()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if err := second.Err(); err != nil || !inner.holds("order") {
			t.Errorf("59 s after it was handed on: %v, held: %v; want a good lease", err, inner.holds("order"))
		}
		if n := inner.renewed() - renewals; n < 3 {
			t.Errorf("%d renewals in 59 s with a TTL of 30 s", n)
		}
		if lost := lost(t, second); lost.Reason != locking.LossMaxHold || time.Since(began) > time.Minute {
			t.Errorf("lost after %v: %v, want after MaxHold", time.Since(began), lost)
		}
	})
}

// A renewal of the old holder that is under way does not decide over the new one.
func TestTheEndOfALeaseThatIsHandedOnIsThatOfTheServers(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		first := acquire(t, gate, locking.Options{TTL: 30 * time.Second}, "order")
		next := inLine(t.Context(), gate, locking.Options{TTL: 30 * time.Second}, "order")
		inner.set(func() { inner.failRenew = errors.New("no answer") })
		time.Sleep(15 * time.Second)
		release(t, first)
		second := got(t, next)
		if left := time.Until(second.ValidUntil()); left > 15*time.Second || left < 14*time.Second {
			t.Errorf("%v left, want no more than the servers have promised: about 14.7 s", left)
		}
		if lost(t, second).Reason != locking.LossExpired {
			t.Error("want a loss because it could not be renewed")
		}
	})
}

func TestWhatCannotBeHandedOnGoesBackToTheServers(t *testing.T) {
	t.Parallel()
	base := locking.Options{TTL: 30 * time.Second}
	for name, tt := range map[string]struct {
		first, second locking.Options
		keys          []string
		after         time.Duration
		deaf          bool
		handedOn      bool
	}{
		"the same":                {first: base, second: base, handedOn: true},
		"another label":           {first: base, second: locking.Options{TTL: base.TTL, Label: "b", Interest: time.Minute}, handedOn: true},
		"the default TTL":         {first: base, second: locking.Options{}, handedOn: true},
		"a longer TTL":            {first: base, second: locking.Options{TTL: 31 * time.Second}},
		"a shorter TTL":           {first: base, second: locking.Options{TTL: 29 * time.Second}},
		"a block":                 {first: base, second: locking.Options{TTL: base.TTL, Block: 2}},
		"a holder with a block":   {first: locking.Options{TTL: base.TTL, Block: 9}, second: base},
		"more keys":               {first: base, second: base, keys: []string{"order", "other"}},
		"a third of the TTL":      {first: base, second: base, after: 19600 * time.Millisecond, deaf: true, handedOn: true},
		"less than a third of it": {first: base, second: base, after: 19800 * time.Millisecond, deaf: true},
		"long held but renewed":   {first: base, second: base, after: 10 * time.Minute, handedOn: true},
		"the end of MaxHold":      {first: locking.Options{TTL: base.TTL, MaxHold: base.TTL}, second: base, after: 19800 * time.Millisecond},
		"a block of one":          {first: base, second: locking.Options{TTL: base.TTL, Block: 1}, handedOn: true},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				inner := newRAM()
				gate := locking.NewGate(inner, locking.GateOptions{})
				first := acquire(t, gate, tt.first, "order")
				before := tokenOf(t, first)
				keys := tt.keys
				if keys == nil {
					keys = []string{"order"}
				}
				next := inLine(t.Context(), gate, tt.second, keys...)
				if tt.deaf {
					inner.set(func() { inner.failRenew = errors.New("no answer") })
				}
				time.Sleep(tt.after)
				calls := inner.calls()
				_ = first.Release(t.Context())
				second := got(t, next)
				if tokenOf(t, second) <= before {
					t.Errorf("token %d after %d", tokenOf(t, second), before)
				}
				if n := inner.calls() - calls; (n == 0) != tt.handedOn {
					t.Errorf("%d calls, handed on: %v", n, tt.handedOn)
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
				if held, ok := errors.AsType[*locking.HeldError](o.err); !ok || held.Key != "order" || held.Holder.Label != "holder" {
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
			if lease, err := locking.Wait(ctx, gate, []string{"order"}, locking.Options{}); lease != nil || !errors.Is(err, context.Canceled) {
				t.Fatalf("lease %v, error %v, want Canceled", lease, err)
			}
		}
		release(t, acquire(t, gate, locking.Options{}, "order"))
	})
}

func TestGivingUpAtTheMomentOfTheHandOnLosesNothing(t *testing.T) {
	virtually(t, func(t *testing.T) { // where it is known that the waiters stand in line
		const rounds = 2000
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		given := 0
		for i := range rounds {
			holder := acquire(t, gate, locking.Options{}, "order")
			ctx, cancel := context.WithCancel(t.Context())
			leaving := inLine(ctx, gate, locking.Options{}, "order")
			staying := inLine(t.Context(), gate, locking.Options{}, "order")
			var wg sync.WaitGroup
			wg.Go(func() {
				for range rand.IntN(200) {
					_ = ctx.Err()
				}
				cancel()
			})
			wg.Go(func() { release(t, holder) })
			wg.Wait()
			for _, c := range []<-chan outcome{leaving, staying} {
				switch o := <-c; {
				case o.err == nil:
					release(t, o.lease)
				case c == staying || !errors.Is(o.err, context.Canceled) || !errors.Is(o.err, locking.ErrHeld):
					t.Fatalf("wait: %v", o.err)
				default:
					given++
				}
			}
			if inner.holds("order") {
				t.Fatalf("round %d: the servers still have the lock", i)
			}
		}
		if given == 0 || given == rounds {
			t.Errorf("%d of %d gave up: the moment was never hit", given, rounds)
		}
	})
}

func TestALossLetsTheNextInLineGoOn(t *testing.T) {
	t.Parallel()
	opts := locking.Options{TTL: 10 * time.Second, MaxHold: 20 * time.Second}
	force, deaf := func(r *ram) { delete(r.owners, "order") }, func(r *ram) { r.failRenew = errors.New("no answer") }
	for name, tt := range map[string]struct {
		harm     func(r *ram) // before it
		handedOn bool         // the lease that is lost
		within   time.Duration
	}{
		"MaxHold":                      {func(*ram) {}, false, 21 * time.Second},
		"taken by force":               {force, false, 5 * time.Second},
		"cannot renew":                 {deaf, false, 11 * time.Second},
		"MaxHold, handed on":           {func(*ram) {}, true, 21 * time.Second},
		"taken by force, handed on":    {force, true, 5 * time.Second},
		"cannot renew, when handed on": {deaf, true, 11 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				inner := newRAM()
				gate := locking.NewGate(inner, locking.GateOptions{})
				first := acquire(t, gate, opts, "order")
				if tt.handedOn {
					second := inLine(t.Context(), gate, opts, "order")
					release(t, first)
					first = got(t, second)
				}
				before := tokenOf(t, first)
				a := inLine(t.Context(), gate, opts, "order")
				b := inLine(t.Context(), gate, opts, "order")
				inner.set(func() { tt.harm(inner) })
				began := time.Now()
				o := <-a
				if o.err != nil || o.at.Sub(began) > tt.within {
					t.Fatalf("after %v: %v, want a lease within %v", o.at.Sub(began), o.err, tt.within)
				}
				if !errors.Is(first.Err(), locking.ErrLost) || tokenOf(t, o.lease) <= before {
					t.Errorf("the old lease: %v; token %d after %d", first.Err(), tokenOf(t, o.lease), before)
				}
				inner.set(func() { inner.failRenew = nil })
				if err := first.Release(t.Context()); !errors.Is(err, locking.ErrLost) {
					t.Errorf("release of the lost lease: %v, want ErrLost", err)
				}
				waits(t, b)
				if err := o.lease.Renew(t.Context()); err != nil || !inner.holds("order") {
					t.Errorf("the new lease was harmed: %v, held: %v", err, inner.holds("order"))
				}
				calls := inner.calls()
				release(t, o.lease)
				release(t, got(t, b))
				if n := inner.calls() - calls; n != 1 {
					t.Errorf("%d calls, want that the lease is handed on and released", n)
				}
			})
		})
	}
}

// A lease that was lost by the servers while nobody has noticed is not handed on, and its keys are given back.
func TestALeaseThatIsOverIsNotHandedOn(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		first := acquire(t, gate, locking.Options{TTL: 10 * time.Second}, "order")
		next := inLine(t.Context(), gate, locking.Options{TTL: 10 * time.Second}, "order")
		inner.set(func() { delete(inner.owners, "order") })
		if err := first.Renew(t.Context()); !errors.Is(err, locking.ErrLost) {
			t.Fatalf("renew: %v, want ErrLost", err)
		}
		if err := first.Release(t.Context()); !errors.Is(err, locking.ErrLost) {
			t.Errorf("release: %v, want ErrLost", err)
		}
		got(t, next)
		if n := inner.asked(); n != 2 {
			t.Errorf("the servers were asked %d times, want 2", n)
		}
	})
}

func TestOverlappingSetsOfKeysExcludeEachOtherWithoutADeadlock(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*testing.T, func(*testing.T)){
		"in virtual time": func(t *testing.T, test func(*testing.T)) { synctest.Test(t, test) },
		"in real time":    func(t *testing.T, test func(*testing.T)) { test(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T) {
				inner := newRAM()
				gates := []*locking.Gate{locking.NewGate(inner, locking.GateOptions{}), locking.NewGate(inner, locking.GateOptions{HandOns: 2})}
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
func TestOneWhoGivesUpNoLongerStandsInTheWay(t *testing.T) {
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

func TestALocalRefusalAsksNobodyAndNamesTheHolder(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		lease := acquire(t, gate, locking.Options{TTL: 30 * time.Second, Label: "host/1\x00/order"}, "b", "c")
		since := time.Now()
		time.Sleep(4 * time.Second)
		calls := inner.calls()
		_, err := gate.Acquire(t.Context(), []string{"d", "c", "a"}, locking.Options{})
		held, ok := errors.AsType[*locking.HeldError](err)
		if !ok || !errors.Is(err, locking.ErrHeld) || held.Key != "c" {
			t.Fatalf("error %v, want that c is held", err)
		}
		token, _ := lease.FenceOf(t.Context(), "c")
		if h := held.Holder; h.Label != "host/1?/order" || !h.Since.Equal(since) || h.Fence != token ||
			h.Remaining < 25*time.Second || h.Remaining > 26*time.Second {
			t.Errorf("holder %+v, want its label, since %v, token %d and about 25.7 s left", h, since, token)
		}
		if inner.calls() != calls {
			t.Error("the servers were asked")
		}
		release(t, acquire(t, gate, locking.Options{}, "d", "a")) // of which nothing was kept
		release(t, lease)
		acquire(t, gate, locking.Options{}, "c")
		if h := refused(t, gate, "c"); h.Label != locking.DefaultLabel() {
			t.Errorf("a holder without a label is %q, want %q", h.Label, locking.DefaultLabel())
		}
	})
}

// Those who come while the servers are asked wait for the answer: it decides.
func TestAnAttemptThatMeetsOneUnderWayIsDecidedByItsAnswer(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, answer := range map[string]error{"granted": nil, "failed": broken} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				inner := newRAM()
				slow := make(chan struct{})
				n := 0
				inner.fail = func() error {
					n++
					if n > 1 {
						return nil
					}
					<-slow
					return answer
				}
				gate := locking.NewGate(inner, locking.GateOptions{})
				attempt := func(ctx context.Context) <-chan outcome {
					c := make(chan outcome, 1)
					go func() {
						lease, err := gate.Acquire(ctx, []string{"order"}, locking.Options{})
						c <- outcome{lease, err, time.Now()}
					}()
					synctest.Wait()
					return c
				}
				first := attempt(t.Context())
				second := attempt(t.Context())
				ctx, cancel := context.WithCancel(t.Context())
				third := attempt(ctx)
				cancel()
				if o := <-third; !errors.Is(o.err, context.Canceled) || errors.Is(o.err, locking.ErrHeld) {
					t.Errorf("error %v, want Canceled", o.err)
				}
				waits(t, first)
				waits(t, second)
				if n := inner.asked(); n != 1 {
					t.Errorf("asked %d times, want once", n)
				}
				close(slow)
				if o := <-first; !errors.Is(o.err, answer) {
					t.Errorf("first: %v, want %v", o.err, answer)
				} else if o.err == nil {
					defer func() { release(t, o.lease) }()
				}
				o := <-second
				if answer == nil && !errors.Is(o.err, locking.ErrHeld) || answer != nil && o.err != nil {
					t.Errorf("second: %v", o.err)
				}
				if o.lease != nil {
					release(t, o.lease)
				}
			})
		})
	}
}

func TestInterestIsToldOfAtTheReleaseThatGoesToTheServers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		interest, hold time.Duration
		want           bool
	}{
		"shown":    {time.Minute, time.Second, true},
		"over":     {time.Second, 2 * time.Second, false},
		"not even": {0, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				gate := locking.NewGate(newRAM(), locking.GateOptions{})
				watch, err := gate.Watch(t.Context(), []string{"other", "order"})
				if err != nil {
					t.Fatal(err)
				}
				defer watch.Close()
				silent := func() {
					t.Helper()
					synctest.Wait()
					select {
					case <-watch.C:
						t.Error("a notice before the release")
					default:
					}
				}
				first := acquire(t, gate, locking.Options{}, "order")
				next := inLine(t.Context(), gate, locking.Options{}, "order")
				if _, err := gate.Acquire(t.Context(), []string{"order"}, locking.Options{Interest: tt.interest}); !errors.Is(err, locking.ErrHeld) {
					t.Fatal(err)
				}
				if _, err := gate.Acquire(t.Context(), []string{"order"}, locking.Options{Interest: tt.interest / 1000}); !errors.Is(err, locking.ErrHeld) {
					t.Fatal(err)
				}
				release(t, first)
				second := got(t, next)
				silent()
				if first.Contended() {
					t.Error("the lease that was handed on is contended: nobody could have got the key")
				}
				time.Sleep(tt.hold)
				release(t, second)
				if second.Contended() != tt.want {
					t.Errorf("contended: %v, want %v", second.Contended(), tt.want)
				}
				select {
				case <-watch.C:
				default:
					t.Error("no notice of the release")
				}
				watch.Close()
				release(t, acquire(t, gate, locking.Options{}, "order"))
				silent()
			})
		})
	}
}

func TestAWatchOfAGateKeepsToTheKeysThatItWasGiven(t *testing.T) {
	virtually(t, func(t *testing.T) {
		gate := locking.NewGate(newRAM(), locking.GateOptions{})
		keys := []string{"a"}
		watch, err := gate.Watch(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		keys[0] = "b" // the caller's own
		watch.Close()
		release(t, acquire(t, gate, locking.Options{}, "a"))
		select {
		case <-watch.C:
			t.Error("a notice on a watch that is closed")
		default:
		}
	})
}

// otherProcesses returns gates on one fake server, each with connections of its own.
func otherProcesses(t *testing.T, n int, opts locking.GateOptions) []*locking.Gate {
	m, _ := redistest.Virtual(t)
	gates := make([]*locking.Gate, n)
	for i := range gates {
		gates[i] = locking.NewGate(newSingle(t, redistest.VirtualClient(t, m), locking.SingleOptions{}), opts)
	}
	return gates
}

func TestANoticeOfAnotherProcessWakesTheFirstInLine(t *testing.T) {
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
		watch, err := gates[1].Watch(t.Context(), []string{"order"})
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
		synctest.Wait()
		holder := acquire(t, gates[0], locking.Options{}, "order")
		if _, err := gates[1].Acquire(t.Context(), []string{"order"}, locking.Options{Interest: time.Minute}); !errors.Is(err, locking.ErrHeld) {
			t.Fatal(err)
		}
		release(t, holder)
		synctest.Wait()
		select {
		case <-watch.C:
		default:
			t.Error("no notice")
		}
		if !holder.Contended() {
			t.Error("the holder was not told of the other process")
		}
	})
}

// After so many hand-ons the lock goes back, and the process that waits for it comes first.
func TestAnotherProcessGetsItsTurn(t *testing.T) {
	t.Parallel()
	for name, tt := range handOns {
		if tt.holders > 16 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				gates := otherProcesses(t, 2, locking.GateOptions{HandOns: tt.option})
				holder := acquire(t, gates[0], locking.Options{}, "order")
				other := inLine(t.Context(), gates[1], locking.Options{}, "order")
				waits(t, other)
				var here atomic.Int64
				var wg sync.WaitGroup
				for range 60 {
					wg.Go(func() {
						lease, err := locking.Wait(t.Context(), gates[0], []string{"order"}, locking.Options{})
						if err != nil {
							t.Error(err)
							return
						}
						here.Add(1)
						time.Sleep(time.Millisecond)
						release(t, lease)
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

func TestNobodyWaitsForLongInACrowd(t *testing.T) {
	virtually(t, func(t *testing.T) {
		crowd(t, otherProcesses(t, 4, locking.GateOptions{}), 16, 10, time.Millisecond, 2*time.Second)
	})
}

func TestACrowdOnARealServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, opts := range map[string]locking.GateOptions{"hand-ons": {}, "none": {HandOns: -1}} {
		t.Run(name, func(t *testing.T) {
			gates := make([]*locking.Gate, 4)
			for i := range gates {
				gates[i] = locking.NewGate(newSingle(t, server.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true }), locking.SingleOptions{}), opts)
			}
			crowd(t, gates, 16, 10, 100*time.Microsecond, patience)
		})
	}
}

func TestErrorsOfTheServersGoToWhoeverAskedAndFreeTheKey(t *testing.T) {
	t.Parallel()
	down := fmt.Errorf("no route: %w", locking.ErrUnavailable)
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		until    time.Duration // it fails
		err      error
		want     error
		from, to time.Duration // when the first in line has its answer
	}{
		"down for a while": {5 * time.Second, down, nil, 5 * time.Second, 5800 * time.Millisecond},
		"down":             {time.Minute, down, locking.ErrUnavailable, 10 * time.Second, 10800 * time.Millisecond},
		"broken":           {time.Minute, broken, broken, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				inner := newRAM()
				gate := locking.NewGate(inner, locking.GateOptions{})
				began := time.Now()
				inner.fail = func() error {
					if time.Since(began) < tt.until {
						return tt.err
					}
					return nil
				}
				if _, err := gate.Acquire(t.Context(), []string{"order"}, locking.Options{}); !errors.Is(err, tt.err) || errors.Is(err, locking.ErrHeld) {
					t.Errorf("acquire: %v, want %v", err, tt.err)
				}
				first := inLine(t.Context(), gate, locking.Options{}, "order")
				o := <-first
				if took := o.at.Sub(began); !errors.Is(o.err, tt.want) || took < tt.from || took > tt.to {
					t.Fatalf("after %v: %v, want %v between %v and %v", took, o.err, tt.want, tt.from, tt.to)
				}
				inner.set(func() { inner.fail = nil })
				if o.lease == nil {
					o = <-waiting(t.Context(), gate, locking.Options{}, "order")
				}
				if o.err != nil {
					t.Fatal(o.err)
				}
				release(t, o.lease)
			})
		})
	}
}

func TestTheNextInLineGoesOnWhenTheFirstHasFailed(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		broken := errors.New("broken")
		holder := acquire(t, gate, locking.Options{}, "order")
		first := inLine(t.Context(), gate, locking.Options{TTL: 20 * time.Second}, "order") // is not handed on
		second := inLine(t.Context(), gate, locking.Options{TTL: 20 * time.Second}, "order")
		n := 0
		inner.set(func() {
			inner.fail = func() error {
				n++
				if n == 1 {
					return broken
				}
				return nil
			}
		})
		release(t, holder)
		if o := <-first; !errors.Is(o.err, broken) {
			t.Errorf("first: %v", o.err)
		}
		release(t, got(t, second))
	})
}

// Those who stand in line have waited for the servers too: their patience ends together, but not before each has had it.
func TestALineIsPatientTogether(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		inner.fail = func() error { return locking.ErrUnavailable }
		gate := locking.NewGate(inner, locking.GateOptions{})
		began := time.Now()
		var line []<-chan outcome
		for range 3 {
			line = append(line, inLine(t.Context(), gate, locking.Options{}, "order"))
		}
		time.Sleep(5 * time.Second)
		late := inLine(t.Context(), gate, locking.Options{}, "order")
		for i, c := range append(line, late) {
			from := 10 * time.Second
			if c == late {
				from = 15 * time.Second
			}
			o := <-c
			if took := o.at.Sub(began); !errors.Is(o.err, locking.ErrUnavailable) || took < from || took > from+longestPause {
				t.Errorf("waiter %d after %v: %v, want ErrUnavailable after %v", i, took, o.err, from)
			}
		}
	})
}

func TestAPanicOfTheServersClientFreesTheKey(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, g *locking.Gate) (*locking.Lease, error){
		"Acquire": func(ctx context.Context, g *locking.Gate) (*locking.Lease, error) {
			return g.Acquire(ctx, []string{"order"}, locking.Options{})
		},
		"Wait": func(ctx context.Context, g *locking.Gate) (*locking.Lease, error) {
			return locking.Wait(ctx, g, []string{"order"}, locking.Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				inner := newRAM()
				gate := locking.NewGate(inner, locking.GateOptions{})
				asked := make(chan struct{})
				inner.fail = func() error {
					<-asked
					inner.set(func() { inner.fail = nil })
					panic("no idea")
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				panicked := make(chan any, 1)
				go func() {
					defer func() { panicked <- recover() }()
					_, _ = call(ctx, gate)
				}()
				time.Sleep(time.Second)
				next := waiting(ctx, gate, locking.Options{}, "order")
				time.Sleep(time.Second)
				close(asked)
				if p := <-panicked; p != "no idea" {
					t.Errorf("recovered %v, want the panic", p)
				}
				if o := <-next; o.err != nil || time.Since(o.at) > time.Second {
					t.Errorf("the next in line: %v", o.err)
				} else {
					release(t, o.lease)
				}
				release(t, acquire(t, gate, locking.Options{}, "order"))
			})
		})
	}
}

func TestAGateOverAGateHandsOnEachTokenOnce(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		below := locking.NewGate(inner, locking.GateOptions{HandOns: 2})
		above := locking.NewGate(below, locking.GateOptions{HandOns: 4})
		crowd(t, []*locking.Gate{above, below, locking.NewGate(above, locking.GateOptions{})}, 8, 10, time.Millisecond, time.Minute)

		asked := inner.asked()
		for range 3 {
			first := acquire(t, above, locking.Options{}, "order")
			var line []<-chan outcome
			for range 4 {
				line = append(line, inLine(t.Context(), above, locking.Options{}, "order"))
			}
			release(t, first)
			for _, c := range line {
				release(t, got(t, c))
			}
		}
		if n := inner.asked() - asked; n != 3 {
			t.Errorf("the servers were asked %d times for 3 rows of 5, want 3: the gate above decides", n)
		}
	})
}

func TestAGateRefusesWhatItsLockerWould(t *testing.T) {
	t.Parallel()
	inner := newRAM()
	gate := locking.NewGate(inner, locking.GateOptions{})
	for name, tt := range map[string]struct {
		keys []string
		opts locking.Options
	}{
		"no key": {nil, locking.Options{}},
		"TTL":    {[]string{"order"}, locking.Options{TTL: time.Hour}},
	} {
		if _, err := gate.Acquire(t.Context(), tt.keys, tt.opts); err == nil || errors.Is(err, locking.ErrHeld) {
			t.Errorf("%s: acquire: %v", name, err)
		}
		if _, err := locking.Wait(t.Context(), gate, tt.keys, tt.opts); err == nil || errors.Is(err, locking.ErrHeld) {
			t.Errorf("%s: wait: %v", name, err)
		}
	}
	if inner.calls() != 0 {
		t.Error("the servers were asked")
	}
	defer func() {
		if recover() == nil {
			t.Error("NewGate takes no Locker")
		}
	}()
	locking.NewGate(nil, locking.GateOptions{})
}
