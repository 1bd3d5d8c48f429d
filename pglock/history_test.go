package pglock_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/railtoken/railtoken/internal/dbtest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// A history is what the callers of one lock have seen, for porcupine to judge.
type history struct {
	began time.Time

	mu         sync.Mutex
	operations []porcupine.Operation
	leases     int
}

// event is the beginning or the end of a lease.
type event struct {
	token int64
	ends  bool
}

// lockState is the holder's token, or 0, and the last one.
type lockState struct{ holder, last int64 }

// lockModel is a lock with one holder at a time, and tokens that grow.
var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, e := state.(lockState), input.(event)
		if e.ends {
			return s.holder == e.token, lockState{last: s.last}
		}
		return s.holder == 0 && e.token > s.last, lockState{e.token, e.token}
	},
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

func (h *history) add(client int, e event, call, end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, porcupine.Operation{ClientId: client, Input: e, Call: call, Return: end})
	if !e.ends {
		h.leases++
	}
}

// use holds the key for a moment, and records that. A lease that is lost ends when its holder is told.
func (h *history) use(ctx context.Context, client int, l locking.Locker, opts locking.Options) error {
	call := h.now()
	lease, err := locking.Wait(ctx, l, []string{"key"}, opts)
	if err != nil {
		return err
	}
	token, err := lease.Fence(ctx)
	if err != nil {
		return errors.Join(err, lease.Release(context.WithoutCancel(ctx)))
	}
	h.add(client, event{token: token}, call, h.now())
	select {
	case <-lease.Done():
	case <-time.After(2 * time.Millisecond):
	}
	call = h.now()
	end := int64(math.MaxInt64) // a release without an answer may take effect at any time
	if lease.Release(context.WithoutCancel(ctx)) == nil {
		end = h.now()
	}
	h.add(client, event{token: token, ends: true}, call, end)
	return nil
}

func TestLocksAreLinearizableUnderFaults(t *testing.T) {
	t.Parallel()
	server := dbtest.StartPostgres(t)
	d := newDatabaseOn(t, server)
	h := &history{began: time.Now()}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for client := range 5 {
		var l locking.Locker = d.locker(t, pglock.Options{})
		if client%2 == 0 {
			l = locking.NewGate(l, locking.GateOptions{HandOffs: 2})
		}
		all.Go(func() {
			for ctx.Err() == nil {
				err := h.use(ctx, client, l, locking.Options{TTL: time.Second})
				if err != nil && ctx.Err() == nil && !errors.Is(err, locking.ErrUnavailable) && !errors.Is(err, locking.ErrLost) {
					t.Errorf("client %d: %v", client, err)
				}
			}
		})
	}
	work := func(least int) { // awaits so many leases after a fault
		t.Helper()
		h.mu.Lock()
		goal := h.leases + least
		h.mu.Unlock()
		for began := time.Now(); ; <-time.After(5 * time.Millisecond) {
			h.mu.Lock()
			leases := h.leases
			h.mu.Unlock()
			if leases >= goal {
				return
			}
			if time.Since(began) > 60*time.Second {
				t.Fatalf("%d leases, want %d", leases, goal)
			}
		}
	}
	work(10)
	server.Kill(t)
	server.Restart(t)
	work(10)
	server.Pause(t)
	<-time.After(1200 * time.Millisecond) // longer than the TTL
	server.Resume()
	work(10)
	server.Kill(t)
	server.Restart(t)
	work(10)
	stop()
	all.Wait()
	if result := porcupine.CheckOperationsTimeout(lockModel, h.operations, time.Minute); result != porcupine.Ok {
		t.Errorf("porcupine says %v to %d leases", result, h.leases)
	}
	t.Logf("%d leases", h.leases)
}

func TestTheJudgeRefusesBadHistories(t *testing.T) {
	t.Parallel()
	begins := func(token, call, end int64) porcupine.Operation {
		return porcupine.Operation{ClientId: int(token), Input: event{token: token}, Call: call, Return: end}
	}
	ends := func(token, call, end int64) porcupine.Operation {
		return porcupine.Operation{ClientId: int(token), Input: event{token: token, ends: true}, Call: call, Return: end}
	}
	for name, tt := range map[string]struct {
		history []porcupine.Operation
		good    bool
	}{
		"one after another":        {[]porcupine.Operation{begins(1, 0, 1), ends(1, 2, 3), begins(2, 4, 5)}, true},
		"granted while it ends":    {[]porcupine.Operation{begins(1, 0, 1), ends(1, 2, 6), begins(2, 3, 4)}, true},
		"two holders":              {[]porcupine.Operation{begins(1, 0, 1), begins(2, 2, 3), ends(1, 4, 5)}, false},
		"a smaller token":          {[]porcupine.Operation{begins(2, 0, 1), ends(2, 2, 3), begins(1, 4, 5)}, false},
		"a token that comes again": {[]porcupine.Operation{begins(1, 0, 1), ends(1, 2, 3), begins(1, 4, 5)}, false},
	} {
		if good := porcupine.CheckOperations(lockModel, tt.history); good != tt.good {
			t.Errorf("%s: %v", name, good)
		}
	}
}
