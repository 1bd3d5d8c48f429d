package holdings_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// place is where the locks of a worker are.
type place struct {
	mu   sync.Mutex
	name string // empty while it is not known
	told []string

	takes time.Duration // until the lock servers answer
}

func (p *place) is(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name = name
}

// heard returns what was told since the last call.
func (p *place) heard() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, p.told = p.told, nil
	return all
}

func (p *place) tell(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, text)
}

// worker returns a worker of a queue that reports nothing yet.
func (p *place) worker(client redis.UniversalClient, queue string) *holdings.Reporter {
	return holdings.New(client, &holdings.Set{}, holdings.Worker{Queues: map[string]int{queue: 1}}, holdings.Options{
		Store: func(ctx context.Context) (string, bool) {
			select {
			case <-time.After(p.takes):
			case <-ctx.Done():
				return "", false
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.name, p.name != ""
		},
		Moved:  func(before, now string) { p.tell(before + " to " + now) },
		Beside: func(now string, r *holdings.Rival) { p.tell(now + " beside " + r.Store + " in " + r.Queue) },
	})
}

func starts(t *testing.T, r *holdings.Reporter, beside bool) *holdings.Rival {
	t.Helper()
	rival, _, err := r.Start(t.Context(), beside)
	if err != nil {
		t.Fatal(err)
	}
	return rival
}

func TestAKilledRivalIsForgottenAfterFifteenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, client := redistest.Virtual(t)
		its := redistest.VirtualClient(t, m)
		killed := (&place{name: "x"}).worker(its, "a")
		starts(t, killed, false)
		_ = its.Close()
		defer killed.Close()

		second := (&place{name: "y"}).worker(client, "a")
		defer second.Close()
		for range 15 {
			if starts(t, second, false) == nil {
				t.Fatal("it has started beside a rival")
			}
			time.Sleep(time.Second)
		}
		if rival := starts(t, second, false); rival != nil {
			t.Errorf("after 15 s it is refused because of %+v", rival)
		}
	})
}

// Nobody sees the report of a worker that is refused, or two of them could refuse each other for good.
// A worker waits for slow lock servers before it starts: once it runs, it is only warned.
func TestARivalIsRefusedWhoseLockServersAreSlow(t *testing.T) {
	t.Parallel()
	for takes, refused := range map[time.Duration]bool{1900 * time.Millisecond: true, 2100 * time.Millisecond: false} {
		t.Run(takes.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, client := redistest.Virtual(t)
				first := (&place{name: "x"}).worker(client, "a")
				starts(t, first, false)
				defer first.Close()
				second := (&place{name: "y", takes: takes}).worker(client, "a")
				defer second.Close()
				if rival := starts(t, second, false); (rival != nil) != refused {
					t.Errorf("its rival is %+v, want it refused: %t", rival, refused)
				}
			})
		})
	}
}

func TestARefusedWorkerIsNobodysRival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		first, second := (&place{name: "x"}).worker(client, "a"), (&place{name: "y"}).worker(client, "a")
		starts(t, first, false)
		for range 3 {
			if starts(t, second, false) == nil {
				t.Fatal("it has started beside a rival")
			}
		}
		first.Close()
		third := (&place{name: "z"}).worker(client, "a")
		if rival := starts(t, third, false); rival != nil {
			t.Errorf("it is refused because of %+v", rival)
		}
		third.Close()
		if n := client.Exists(t.Context(), holdings.Workers).Val(); n != 0 {
			t.Error("reports remain")
		}
	})
}

func TestAWorkerWhoseLocksMoveIsComparedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		one, other := &place{name: "x"}, &place{name: "x"}
		first, second := one.worker(client, "a"), other.worker(client, "a")
		starts(t, first, false)
		starts(t, second, false)
		defer first.Close()
		defer second.Close()
		expect := func(p *place, what string, want ...string) {
			t.Helper()
			time.Sleep(3 * holdings.Interval)
			synctest.Wait()
			if got := p.heard(); !slices.Equal(got, want) {
				t.Errorf("%s: told %q, want %q", what, got, want)
			}
		}
		expect(one, "nothing moves")
		one.is("y") // the server that both use has lost its data
		other.is("y")
		expect(one, "both move", "x to y")
		one.is("")
		expect(one, "the server cannot be asked")
		one.is("z")
		expect(one, "one moves", "y to z", "z beside y in a")
	})
}

func TestAWorkerThatKnewNoStoreIsComparedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		late := &place{}
		first, second := (&place{name: "x"}).worker(client, "a"), late.worker(client, "a")
		starts(t, first, false)
		if rival := starts(t, second, false); rival != nil {
			t.Errorf("refused because of %+v", rival)
		}
		defer first.Close()
		defer second.Close()
		time.Sleep(time.Minute)
		late.is("y")
		time.Sleep(3 * holdings.Interval)
		synctest.Wait()
		if told := late.heard(); !slices.Equal(told, []string{"y beside x in a"}) {
			t.Errorf("told %q", told)
		}
	})
}
