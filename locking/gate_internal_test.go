package locking

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/locking/backend"
)

// toldServer is a Backend and Watcher in memory whose answers a test can change. Its grants do nothing.
type toldServer struct {
	mu      sync.Mutex
	answer  func() error
	onWatch func()
	made    int // watches
	closed  int
}

func (s *toldServer) Acquire(_ context.Context, r backend.Request) (backend.Grant, error) {
	s.mu.Lock()
	answer := s.answer
	s.mu.Unlock()
	if answer != nil {
		if err := answer(); err != nil {
			return nil, err
		}
	}
	return blockGrant{&fakeGrant{began: time.Now()}, r.Block}, nil
}

func (s *toldServer) Watch(context.Context, []string) (<-chan struct{}, func(), error) {
	if s.onWatch != nil {
		s.onWatch()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	return make(chan struct{}), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closed++
	}, nil
}

func (s *toldServer) tell(answer func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

type blockGrant struct {
	*fakeGrant
	block int
}

func (g blockGrant) Block() int { return g.block }

// isIdle checks that a gate keeps nothing.
func isIdle(t *testing.T, g *Gate) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.entries) != 0 || len(g.groups) != 0 || len(g.subscribers) != 0 {
		t.Errorf("an unused gate keeps %d keys, %d groups and %d watches", len(g.entries), len(g.groups),
			len(g.subscribers))
	}
}

func TestAGateForgetsUnusedKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &toldServer{}
		refuse := func() error {
			switch rand.IntN(8) {
			case 0:
				return &HeldError{Key: "a"}
			case 1:
				return ErrUnavailable
			case 2:
				return errNoAnswer
			case 3:
				panic("no idea")
			}
			return nil
		}
		server.tell(refuse)
		gate := NewGate(New(server), GateOptions{HandOffs: 3})
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for range 100 {
					use(t, gate)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		isIdle(t, gate)
		if server.made == 0 || server.made != server.closed {
			t.Errorf("%d watches were made and %d closed", server.made, server.closed)
		}
	})
}

// use takes some keys in one of the ways there are.
func use(t *testing.T, gate *Gate) {
	defer func() { _ = recover() }()
	keys := [][]string{{"a"}, {"b"}, {"a", "b"}, {"b", "c"}}[rand.IntN(4)]
	opts := Options{TTL: time.Second, MaxHold: 2 * time.Second}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(int(time.Second))))
	defer cancel()
	var lease *Lease
	var err error
	switch rand.IntN(3) {
	case 0:
		lease, err = gate.Acquire(ctx, keys, opts)
	case 1:
		_, stop, failed := gate.Watch(ctx, keys)
		if failed != nil {
			t.Error(failed)
			return
		}
		defer stop()
		fallthrough
	default:
		lease, err = Wait(ctx, gate, keys, opts)
	}
	if err != nil {
		return
	}
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	if rand.IntN(20) == 0 {
		time.Sleep(3 * time.Second) // lost
	}
	_ = lease.Release(ctx)
}

// The turn may come while the watch of a group is being opened; then nothing is left to close it.
func TestALateWatchIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &toldServer{}
		server.tell(func() error { return &HeldError{Key: "order"} })
		gate := NewGate(New(server), GateOptions{})
		server.onWatch = func() {
			server.tell(nil)
			lease, err := gate.Acquire(t.Context(), []string{"order"}, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			if err := lease.Release(t.Context()); err != nil { // hands it on to the waiter
				t.Error(err)
			}
		}
		lease, err := Wait(t.Context(), gate, []string{"order"}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if lease.offset != 1 {
			t.Fatal("the lease was not handed off: this is no test")
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if server.made != 1 || server.closed != 1 {
			t.Errorf("%d watches were made and %d closed, want one", server.made, server.closed)
		}
		isIdle(t, gate)
	})
}

// A waiter that gives up when it has been given its turn keeps a lease, and passes on the right to ask the servers.
func TestALateTurnIsNotWasted(t *testing.T) {
	t.Parallel()
	for _, handOffs := range []int{0, -1} { // a lease, or the right to ask the servers
		gate := NewGate(New(&toldServer{}), GateOptions{HandOffs: handOffs})
		keys, opts, err := prepare([]string{"order"}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, behind := range []bool{false, true} {
			lease, err := gate.Acquire(t.Context(), keys, opts)
			if err != nil {
				t.Fatal(err)
			}
			w := gate.enqueue(keys, opts, false)
			var next *waiter
			if behind {
				next = gate.enqueue(keys, opts, false)
			}
			if err := lease.Release(t.Context()); err != nil || !w.busy {
				t.Fatalf("release: %v, its turn: %v", err, w.busy)
			}
			handed, err := gate.quit(w, errNoAnswer)
			if handOffs == 0 {
				if err != nil || handed == nil {
					t.Fatalf("lease %v, error %v, want the lease that it was handed", handed, err)
				}
				if err := handed.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else if !errors.Is(err, errNoAnswer) || handed != nil {
				t.Errorf("error %v, want that of the wait", err)
			}
			if behind {
				select {
				case got := <-next.turn:
					if (got.lease != nil) != (handOffs == 0) || (got.hold != nil) == (handOffs == 0) {
						t.Errorf("hand-offs %d: turn %+v", handOffs, got)
					}
					next.turn <- got
				default:
					t.Errorf("hand-offs %d: no waiter has the turn", handOffs)
				}
				if last, _ := gate.quit(next, nil); last != nil {
					_ = last.Release(t.Context())
				}
			}
			isIdle(t, gate)
		}
	}
}

func TestAWaitClosesItsWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &toldServer{}
		n := 0
		server.tell(func() error {
			n++
			if n < 5 {
				return &HeldError{Key: "order"}
			}
			return nil
		})
		lease, err := Wait(t.Context(), New(server), []string{"order"}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		_ = lease.Release(t.Context())
		if server.made != 1 || server.closed != 1 {
			t.Errorf("%d watches were made and %d closed, want one", server.made, server.closed)
		}
	})
}

func TestEachListOfKeysHasItsOwnGroup(t *testing.T) {
	t.Parallel()
	seen := map[string][]string{}
	parts := []string{"", "a", "b", ",", "%", "0", "a,", "a,b", "a,b,", "%0", "%1", "a%1", "%1,", "%10"}
	var lists [][]string
	for _, a := range parts {
		lists = append(lists, []string{a})
		for _, b := range parts {
			lists = append(lists, []string{a, b})
			for _, c := range parts {
				lists = append(lists, []string{a, b, c})
			}
		}
	}
	for _, list := range lists {
		name := groupName(list)
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q both have the line %q", list, other, name)
		}
		seen[name] = list
	}
}

// What a pause is worth: not less than half and not more than one and a half times what the schedule says.
func TestThePausesOfAWaiterGrow(t *testing.T) {
	t.Parallel()
	for announced, first := range map[bool]time.Duration{false: 5 * time.Millisecond, true: 50 * time.Millisecond} {
		p := newPause(announced)
		held := &HeldError{Key: "order"}
		for want := first; want < longPause; want = want * 3 / 2 {
			length, err := p.after(t.Context(), held)
			if err != nil || length < want/2 || length > want*3/2+1 {
				t.Errorf("a pause of %v, %v, want about %v", length, err, want)
			}
		}
		for range 100 {
			length, err := p.after(t.Context(), held)
			if err != nil || length < longPause/2 || length > longPause*3/2 {
				t.Errorf("a pause of %v, %v, want about %v", length, err, longPause)
			}
		}
		if !errors.Is(p.last, ErrHeld) {
			t.Errorf("the last error is %v", p.last)
		}
	}
}
