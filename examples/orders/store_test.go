package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/fence"
)

const testRun runID = "test"

func TestClaimRefusesAnEarlierToken(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	mustClaim(t, s, "late", allocation(11, 1))
	if _, err := s.claim(t.Context(), "early", allocation(10, 1)); !errors.Is(err, fence.ErrFenced) || !strings.Contains(err.Error(), "o1") {
		t.Errorf("claim with an earlier token: %v", err)
	}
	// The same lease may claim once more: its first reply may have been lost.
	mustClaim(t, s, "late", allocation(11, 1))
}

// The holder was stopped for longer than its lease; another one came in between.
func TestCommitRefusesAnEarlierToken(t *testing.T) {
	t.Parallel()
	for name, finish := range map[string]bool{"the later holder works": false, "the later holder has finished": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			early, late := allocation(10, 1), allocation(11, 5)
			mustClaim(t, s, "early", early)
			mustClaim(t, s, "late", late)
			if finish {
				mustCommit(t, s, "late", late)
			}
			if _, err := s.commit(t.Context(), effectOf("early", early)); !errors.Is(err, fence.ErrFenced) {
				t.Errorf("commit with an earlier token: %v", err)
			}
			if !finish {
				mustCommit(t, s, "late", late)
			}
			expectCounters(t, s, 1, 5)
			if n, err := s.finished(t.Context()); n != 1 || err != nil {
				t.Errorf("%d effects in the ledger, %v: the refused one must not be there", n, err)
			}
		})
	}
}

// The token of one of several rows is enough to refuse all of them.
func TestCommitWritesAllRowsOrNone(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	changes := allocation(10, 1)
	mustClaim(t, s, "early", changes)
	mustClaim(t, s, "late", allocation(11, 1)[1:]) // the seller alone
	if _, err := s.commit(t.Context(), effectOf("early", changes)); !errors.Is(err, fence.ErrFenced) {
		t.Fatal(err)
	}
	expectCounters(t, s, 0, 0)
}

func TestEffectIsAppliedOnce(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	first := allocation(10, 4)
	mustClaim(t, s, "a", first)
	mustCommit(t, s, "a", first)

	again := allocation(11, 4)
	if done, err := s.claim(t.Context(), "a", again); !done || err != nil {
		t.Errorf("claim of a task that is done: %t, %v", done, err)
	}
	if done, err := s.commit(t.Context(), effectOf("a", again)); !done || err != nil {
		t.Errorf("commit of a task that is done: %t, %v", done, err)
	}
	expectCounters(t, s, 1, 4)
}

func TestOpenStoreRefusesTheFileOfAnotherRun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "with space & 100%?.db")
	s, err := openStore(t.Context(), path, testRun)
	if err != nil {
		t.Fatal(err)
	}
	again, err := openStore(t.Context(), path, testRun)
	if err != nil {
		t.Fatalf("a second process of the run: %v", err)
	}
	if _, err := openStore(t.Context(), path, "other"); err == nil || !strings.Contains(err.Error(), `belongs to run "test"`) {
		t.Errorf("another run: %v", err)
	}
	if err := errors.Join(s.close(), again.close()); err != nil {
		t.Error(err)
	}
}

func TestStoresOpenANewFileTogether(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "orders.db")
		opened, start := make(chan error), make(chan struct{})
		for range 8 {
			go func() {
				<-start
				s, err := openStore(t.Context(), path, testRun)
				if err == nil {
					err = s.close()
				}
				opened <- err
			}()
		}
		close(start)
		for range 8 {
			if err := <-opened; err != nil {
				t.Error(err)
			}
		}
	}
}

func newStore(t *testing.T) *store {
	t.Helper()
	s, err := openStore(t.Context(), filepath.Join(t.TempDir(), "orders.db"), testRun)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// allocation returns the changes of a task that reserves items of order o1 from seller s1, both locks with the same token.
func allocation(token, items int64) []change {
	return []change{
		{Table: ordersTable, ID: "o1", Key: testRun.orderKey("o1"), Amount: 1, Token: token},
		{Table: sellersTable, ID: "s1", Key: testRun.sellerKey("s1"), Amount: items, Token: token},
	}
}

func effectOf(taskID string, changes []change) effect {
	return effect{TaskID: taskID, Type: allocateType, Began: time.Now(), Changes: changes}
}

func mustClaim(t *testing.T, s *store, taskID string, changes []change) {
	t.Helper()
	if done, err := s.claim(t.Context(), taskID, changes); done || err != nil {
		t.Fatalf("claim of %s: %t, %v", taskID, done, err)
	}
}

func mustCommit(t *testing.T, s *store, taskID string, changes []change) {
	t.Helper()
	if done, err := s.commit(t.Context(), effectOf(taskID, changes)); done || err != nil {
		t.Fatalf("commit of %s: %t, %v", taskID, done, err)
	}
}

func expectCounters(t *testing.T, s *store, revision, reserved int64) {
	t.Helper()
	counters, err := s.counters(t.Context(), testRun)
	if err != nil || counters[testRun.orderKey("o1")] != revision || counters[testRun.sellerKey("s1")] != reserved {
		t.Errorf("counters %v, %v; want revision %d and %d reserved", counters, err, revision, reserved)
	}
}
