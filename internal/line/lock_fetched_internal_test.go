package line

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/colocated"
)

// locksEach is a Parker that notes which tasks it has locked, and refuses all of a key but the first.
type locksEach struct {
	parksAll

	mu    sync.Mutex
	order []string
	down  bool // it can lock none
}

func (l *locksEach) LockFetched(_ context.Context, t Task, _ string, keys []string) (colocated.Held, *colocated.Refused) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order = append(l.order, t.ID)
	if l.down {
		return nil, nil
	}
	return nil, &colocated.Refused{Keys: keys}
}

// lockAll has tasks of key "k" locked, and returns those that were handed on and the attempts that were made.
func lockAll(t *testing.T, parker *locksEach, all ...broker.Fetched) (handedOn []broker.Fetched, attempts []string) {
	t.Helper()
	e := &Engine{closing: t.Context()}
	e.types.Learn("test", time.Minute, colocated.Wait{})
	e.parkers.byType.Store("test", parker)
	for i := range all {
		all[i].Message, all[i].Recorded = "\x0a\x04test", "k"
	}
	locked := make(chan broker.Fetched, len(all))
	if others := (*tasks)(e).Lock(all, func(f broker.Fetched) { locked <- f }); len(others) > 0 {
		t.Fatalf("%d tasks are left to their runs", len(others))
	}
	for range all {
		handedOn = append(handedOn, <-locked)
	}
	parker.mu.Lock()
	defer parker.mu.Unlock()
	return handedOn, parker.order
}

func TestTasksOfOneKeyAreLockedInOrder(t *testing.T) {
	t.Parallel()
	_, attempts := lockAll(t, &locksEach{}, broker.Fetched{ID: "1"}, broker.Fetched{ID: "2"}, broker.Fetched{ID: "3", Woken: true})
	if want := []string{"3", "1", "2"}; !slices.Equal(attempts, want) {
		t.Errorf("locked are %v, want the woken one first and then as fetched: %v", attempts, want)
	}
}

// Otherwise the last of them would wait for as many timeouts.
func TestLocksThatCannotBeReachedAreTriedOnceForTasksOfOneKey(t *testing.T) {
	t.Parallel()
	handedOn, attempts := lockAll(t, &locksEach{down: true}, broker.Fetched{ID: "1"}, broker.Fetched{ID: "2"}, broker.Fetched{ID: "3"})
	if len(attempts) != 1 || len(handedOn) != 3 {
		t.Errorf("%d attempts for %d tasks, want one for 3", len(attempts), len(handedOn))
	}
}
