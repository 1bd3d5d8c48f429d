package locking_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/locking"
)

func TestALocalRefusalNamesTheHolder(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		lease := acquire(t, gate, locking.Options{TTL: 30 * time.Second, Label: "host/1\x00/order"}, "b", "c")
		since := time.Now()
		time.Sleep(2 * time.Second) // it has not been renewed yet
		calls := inner.calls()
		_, err := gate.Acquire(t.Context(), []string{"d", "c", "a"}, locking.Options{})
		held, ok := errors.AsType[*locking.HeldError](err)
		if !ok || !errors.Is(err, locking.ErrHeld) || held.Key != "c" {
			t.Fatalf("error %v, want that c is held", err)
		}
		token, _ := lease.FenceOf(t.Context(), "c")
		if h := held.Holder; h.Label != "host/1?/order" || !h.Since.Equal(since) || h.Fence != token ||
			h.Remaining < 27*time.Second || h.Remaining > 28*time.Second {
			t.Errorf("holder %+v, want its label, since %v, token %d and about 27.7 s left", h, since, token)
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
func TestConcurrentAttemptsShareOneAnswer(t *testing.T) {
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

func TestSubscriptionsAreToldAtTheReleaseOnTheServers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		notify, hold time.Duration
		want         bool
	}{
		"shown":    {time.Minute, time.Second, true},
		"over":     {time.Second, 2 * time.Second, false},
		"not even": {0, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				gate := locking.NewGate(newRAM(), locking.GateOptions{})
				released, stop, err := gate.Watch(t.Context(), []string{"other", "order"})
				if err != nil {
					t.Fatal(err)
				}
				defer stop()
				silent := func() {
					t.Helper()
					synctest.Wait()
					select {
					case <-released:
						t.Error("a notice before the release")
					default:
					}
				}
				first := acquire(t, gate, locking.Options{}, "order")
				next := inLine(t.Context(), gate, locking.Options{}, "order")
				if _, err := gate.Acquire(t.Context(), []string{"order"},
					locking.Options{Notify: tt.notify}); !errors.Is(err, locking.ErrHeld) {
					t.Fatal(err)
				}
				if _, err := gate.Acquire(t.Context(), []string{"order"},
					locking.Options{Notify: tt.notify / 1000}); !errors.Is(err, locking.ErrHeld) {
					t.Fatal(err)
				}
				release(t, first)
				second := got(t, next)
				silent()
				if first.ShouldNotify() {
					t.Error("the lease that was handed off asks for a notification: no other caller could have got the key")
				}
				time.Sleep(tt.hold)
				release(t, second)
				if second.ShouldNotify() != tt.want {
					t.Errorf("contended: %v, want %v", second.ShouldNotify(), tt.want)
				}
				select {
				case <-released:
				default:
					t.Error("no notice of the release")
				}
				stop()
				release(t, acquire(t, gate, locking.Options{}, "order"))
				silent()
			})
		})
	}
}

func TestAWatchOfAGateCopiesItsKeys(t *testing.T) {
	virtually(t, func(t *testing.T) {
		gate := locking.NewGate(newRAM(), locking.GateOptions{})
		keys := []string{"a"}
		released, stop, err := gate.Watch(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		keys[0] = "b" // the caller's own
		stop()
		release(t, acquire(t, gate, locking.Options{}, "a"))
		select {
		case <-released:
			t.Error("a notice on a watch that is closed")
		default:
		}
	})
}

func TestServerErrorsReachTheCallerAndFreeTheKey(t *testing.T) {
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
				if _, err := gate.Acquire(t.Context(), []string{"order"}, locking.Options{}); !errors.Is(err, tt.err) ||
					errors.Is(err, locking.ErrHeld) {
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

func TestTheNextWaiterGoesOnAfterAFailure(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		broken := errors.New("broken")
		holder := acquire(t, gate, locking.Options{}, "order")
		first := inLine(t.Context(), gate, locking.Options{TTL: 20 * time.Second}, "order") // is not handed off
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

// Those who stand in line have waited for the servers too: their patience ends together, but not before each has had
// it.
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
			if took := o.at.Sub(began); !errors.Is(o.err, locking.ErrUnavailable) || took < from ||
				took > from+longestPause {
				t.Errorf("waiter %d after %v: %v, want ErrUnavailable after %v", i, took, o.err, from)
			}
		}
	})
}

func TestAPanicOfTheClientFreesTheKey(t *testing.T) {
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

func TestAGateOverAGateUsesEachTokenOnce(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		below := locking.NewGate(inner, locking.GateOptions{HandOffs: 2})
		above := locking.NewGate(below, locking.GateOptions{HandOffs: 4})
		crowd(t, []*locking.Gate{above, below, locking.NewGate(above, locking.GateOptions{})}, 8, 10, time.Millisecond,
			time.Minute)

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
		"TTL":    {[]string{"order"}, locking.Options{TTL: time.Millisecond}},
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
