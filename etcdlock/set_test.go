package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/locking"
)

// set is a resource whose users read it, add an element to what they have read, and write it back.
type set struct {
	guarded bool // by the fencing tokens of its users

	mu       sync.Mutex
	elements []int
	claimed  int64 // the largest token so far
}

var errFenced = errors.New("a later holder has used the set")

// read returns the elements, and claims the set for a token.
func (s *set) read(token int64) ([]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guarded && token < s.claimed {
		return nil, errFenced
	}
	s.claimed = token
	return slices.Clone(s.elements), nil
}

// write replaces the elements.
func (s *set) write(token int64, elements []int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guarded && token != s.claimed {
		return errFenced
	}
	s.elements = elements
	return nil
}

// lostUpdates has holders that stop between their read and their write, for so long that the next holder comes and
// goes. It returns how many additions that were reported as successful are missing from the set.
func lostUpdates(t *testing.T, guarded bool) int {
	t.Helper()
	addrs := sharedEtcd(t)
	opts := etcdlock.Options{Prefix: fmt.Sprintf("set/%v/", guarded)}
	stopped, others := newLocker(t, addrs, opts), newLocker(t, addrs, opts)
	var lost sync.Map
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			s, key := &set{guarded: guarded}, fmt.Sprint("set:", i)
			var added []int
			// A holder that is stopped does not renew.
			lease, err := stopped.Acquire(t.Context(), []string{key}, locking.Options{TTL: time.Second, MaxHold: time.Second})
			if err != nil {
				t.Error(err)
				return
			}
			token, err := lease.Fence(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			seen, err := s.read(token)
			if err != nil {
				t.Error(err)
			}
			err = locking.Do(t.Context(), others, []string{key}, locking.Options{}, func(ctx context.Context, next *locking.Lease) error {
				token, err := next.Fence(ctx)
				if err != nil {
					return err
				}
				elements, err := s.read(token)
				if err != nil {
					return err
				}
				return s.write(token, append(elements, 2))
			})
			if err != nil {
				t.Error(err)
				return
			}
			added = append(added, 2)
			if err := s.write(token, append(seen, 1)); err == nil { // it continues, without a look at its lease
				added = append(added, 1)
			} else if !errors.Is(err, errFenced) {
				t.Error(err)
			}
			if err := lease.Release(t.Context()); !errors.Is(err, locking.ErrLost) {
				t.Errorf("the release of a lost lease says %v", err)
			}
			for _, element := range added {
				if !slices.Contains(s.elements, element) {
					lost.Store([2]int{i, element}, true)
				}
			}
		})
	}
	all.Wait()
	n := 0
	lost.Range(func(any, any) bool { n++; return true })
	return n
}

// This is what no lock with a time limit can prevent.
func TestASetUnderTheLockAloneLosesUpdates(t *testing.T) {
	t.Parallel()
	if n := lostUpdates(t, false); n == 0 {
		t.Error("a set that is guarded by the lock alone has lost no update")
	}
}

func TestASetUnderFencingTokensLosesNoUpdate(t *testing.T) {
	t.Parallel()
	if n := lostUpdates(t, true); n != 0 {
		t.Errorf("a set that is guarded by fencing tokens has lost %d updates", n)
	}
}
