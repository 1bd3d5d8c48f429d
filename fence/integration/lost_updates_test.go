package integration

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/railtoken/railtoken/fence"
)

// expiringLock is a lock whose holders stall: some lose it without noticing, and go on when a later holder has read.
type expiringLock struct {
	mu      sync.Mutex
	next    int64
	stalled chan stalledHolder // has room for all workers but two, which keep the others going
	over    chan struct{}      // closed when a worker finds nothing left to do
}

// stalledHolder writes when it is woken, and says when it has done so.
type stalledHolder struct{ wake, done chan struct{} }

// hasRead wakes a stalled holder. Half of the time that holder writes first.
func (l *expiringLock) hasRead() {
	select {
	case h := <-l.stalled:
		close(h.wake)
		if rand.IntN(2) == 0 {
			<-h.done
		}
	default:
	}
}

// stall waits until another holder has read, unless too many wait. The caller calls done after its write.
func (l *expiringLock) stall() (done func()) {
	h := stalledHolder{make(chan struct{}), make(chan struct{})}
	select {
	case l.stalled <- h:
	default:
		return func() {}
	}
	select {
	case <-h.wake:
	case <-l.over:
	}
	return func() { close(h.done) }
}

// updates makes n read-modify-writes by several holders, each of which tries again until its write is accepted, and
// returns how many are lost.
func updates(t *testing.T, b *bench, n int, read, write func(tx *sql.Tx, t fence.Token) error) (lost int) {
	t.Helper()
	const workers = 5
	lock := &expiringLock{stalled: make(chan stalledHolder, workers-2), over: make(chan struct{})}
	over := sync.OnceFunc(func() { close(lock.over) })
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			defer over()
			for left.Add(-1) >= 0 {
				for accepted := false; !accepted && !t.Failed(); {
					accepted = update(t, b, lock, read, write)
				}
			}
		})
	}
	all.Wait()
	return n - b.pieces(b.db)
}

// update is one attempt. It returns false if it was fenced.
func update(t *testing.T, b *bench, lock *expiringLock, read, write func(tx *sql.Tx, t fence.Token) error) bool {
	lock.mu.Lock()
	unlock := sync.OnceFunc(lock.mu.Unlock)
	defer unlock()
	lock.next++
	tok, pieces := token(lock.next), 0
	err := retry(b, func(tx *sql.Tx) error {
		if err := read(tx, tok); err != nil {
			return err
		}
		pieces = b.pieces(tx)
		return nil
	})
	if err != nil {
		t.Error(err) // it has the lock, and the largest token
		return false
	}
	lock.hasRead()
	if rand.IntN(3) == 0 {
		unlock() // its lease has ended
		defer lock.stall()()
	}
	err = retry(b, func(tx *sql.Tx) error {
		if err := write(tx, tok); err != nil {
			return err
		}
		_, err := tx.ExecContext(t.Context(), fmt.Sprintf("UPDATE stock SET pieces = %d WHERE id = 1", pieces+1))
		return err
	})
	if err != nil && !errors.Is(err, fence.ErrFenced) {
		t.Error(err)
	}
	return err == nil
}

// retry runs a transaction until it loses no race.
func retry(b *bench, f func(tx *sql.Tx) error) (err error) {
	for range 100 {
		if err = b.in(f); !fence.Retryable(err) {
			break
		}
	}
	return err
}

func TestOnlyClaimOnEntryLosesNoUpdate(t *testing.T) {
	each(t, func(t *testing.T, b *bench, s store) {
		const n = 60
		none := func(*sql.Tx, fence.Token) error { return nil }
		claim := func(tx *sql.Tx, tok fence.Token) error { return b.Claim(t.Context(), tx, tok) }
		check := func(tx *sql.Tx, tok fence.Token) error { return b.Check(t.Context(), tx, tok) }
		lost := map[string]int{}
		for _, mode := range []struct {
			name        string
			read, write func(*sql.Tx, fence.Token) error
		}{{"lock alone", none, none}, {"check on write", none, claim}, {"claim on entry", claim, check}} {
			b := newBench(t, s.dialect, s.open(t))
			lost[mode.name] = updates(t, b, n, mode.read, mode.write)
		}
		t.Logf("of %d updates are lost: %v", n, lost)
		if lost["claim on entry"] != 0 || lost["check on write"] <= 0 || lost["lock alone"] <= 0 {
			t.Errorf("lost: %v; want 0 with claim on entry only", lost)
		}
	})
}
