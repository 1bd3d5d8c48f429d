package etcdlock_test

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/railtoken/railtoken/locking"
)

// history records what callers of locks have seen, for porcupine to judge: per key a lock that has one holder at a
// time, whose tokens grow.
type history struct {
	began time.Time

	mu         sync.Mutex
	operations []porcupine.Operation
	leases     int
	lost       int
}

func newHistory() *history { return &history{began: time.Now()} }

func (h *history) now() int64 { return int64(time.Since(h.began)) }

// event is an acquisition or a release, with the token of the lease.
type event struct {
	key     string
	release bool
	token   int64
}

func (h *history) add(client int, e event, call, end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, porcupine.Operation{ClientId: client, Input: e, Call: call, Return: end})
	if !e.release {
		h.leases++
	}
}

// never is the end of an operation that may take effect at any time.
const never = math.MaxInt64

// held is the state of a lock: the token of its holder, or 0, and the last token.
type held struct{ holder, last int64 }

var lockModel = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range all {
			key := op.Input.(event).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return held{} },
	Step: func(state, input, _ any) (bool, any) {
		s, e := state.(held), input.(event)
		if e.release {
			return s.holder == e.token, held{last: s.last}
		}
		return s.holder == 0 && e.token > s.last, held{e.token, e.token}
	},
}

// judge fails the test unless the history is one of locks, with at least so many leases.
func (h *history) judge(t *testing.T, least int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if result := porcupine.CheckOperationsTimeout(lockModel, h.operations, time.Minute); result != porcupine.Ok {
		t.Errorf("porcupine says %v to a history of %d leases", result, h.leases)
	}
	if h.leases < least {
		t.Errorf("%d leases, want %d or more", h.leases, least)
	}
	t.Logf("%d leases, %d of them lost", h.leases, h.lost)
}

// use takes a key, holds it for a moment and releases it. It records the lease. The error is why there was none.
func (h *history) use(ctx context.Context, client int, l locking.Locker, key string, hold time.Duration) error {
	call := h.now()
	lease, err := locking.Wait(ctx, l, []string{key}, locking.Options{})
	if err != nil {
		return err
	}
	token, err := lease.Fence(ctx)
	if err != nil {
		_ = lease.Release(ctx)
		return err
	}
	h.add(client, event{key: key, token: token}, call, h.now())
	select {
	case <-time.After(hold):
	case <-lease.Done():
	}
	call = h.now()
	err = lease.Release(ctx)
	end := h.now()
	if err != nil {
		end = never // a release without an answer takes effect at some time
	}
	if errors.Is(err, locking.ErrLost) {
		h.mu.Lock()
		h.lost++
		h.mu.Unlock()
	}
	h.add(client, event{key: key, release: true, token: token}, call, end)
	return nil
}

func TestTheJudgeRefusesABadHistory(t *testing.T) {
	t.Parallel()
	type op = porcupine.Operation
	acquire := func(token, call, end int64) op {
		return op{ClientId: int(token), Input: event{key: "k", token: token}, Call: call, Return: end}
	}
	release := func(token, call, end int64) op {
		return op{ClientId: int(token), Input: event{key: "k", token: token, release: true}, Call: call, Return: end}
	}
	for name, tt := range map[string]struct {
		history []op
		want    bool
	}{
		"one after another":    {[]op{acquire(1, 0, 1), release(1, 2, 3), acquire(2, 4, 5)}, true},
		"granted in a release": {[]op{acquire(1, 0, 1), release(1, 2, 5), acquire(2, 3, 4)}, true},
		"release unanswered":   {[]op{acquire(1, 0, 1), release(1, 2, never), acquire(2, 8, 9)}, true},
		"two holders":          {[]op{acquire(1, 0, 1), acquire(2, 2, 3), release(1, 4, 5), release(2, 6, 7)}, false},
		"a token twice":        {[]op{acquire(1, 0, 1), release(1, 2, 3), acquire(1, 4, 5)}, false},
		"a smaller token":      {[]op{acquire(2, 0, 1), release(2, 2, 3), acquire(1, 4, 5)}, false},
	} {
		slices.SortFunc(tt.history, func(a, b op) int { return cmp.Compare(a.Call, b.Call) })
		if got := porcupine.CheckOperations(lockModel, tt.history); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
