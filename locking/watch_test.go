package locking_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// notified takes and releases a key, with a subscription to it, until every watch is notified.
func notified(t *testing.T, l *locking.Single, key string, watches ...<-chan struct{}) {
	t.Helper()
	for began := time.Now(); len(watches) > 0; {
		lease := eventually(t, l, key)
		if _, err := l.Acquire(t.Context(), []string{key},
			locking.Options{Notify: time.Minute}); !errors.Is(err, locking.ErrHeld) {
			t.Fatalf("acquire: %v, want ErrHeld", err)
		}
		release(t, lease)
		select {
		case <-watches[0]:
			watches = watches[1:]
		case <-time.After(50 * time.Millisecond):
			if time.Since(began) > patience {
				t.Fatalf("no notification of a release came within %v", patience)
			}
		}
	}
}

func TestEveryWatchOfAKeyIsNotified(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t), locking.SingleOptions{})
	var watches []<-chan struct{}
	for _, keys := range [][]string{{"order:1"}, {"order:2", "order:1"}, {"order:1", "order:1"}} {
		w, stop, err := l.Watch(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		watches = append(watches, w)
	}
	other, stop, err := l.Watch(t.Context(), []string{"order:2"})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	notified(t, l, "order:1", watches...)
	select {
	case <-other:
		t.Error("a notification for a key that was not released")
	default:
	}
}

func TestAWatchThatIsClosedLeavesTheOthers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t), locking.SingleOptions{})
	_, stopFirst, err := l.Watch(t.Context(), []string{"order:1"})
	if err != nil {
		t.Fatal(err)
	}
	second, stop, err := l.Watch(t.Context(), []string{"order:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	stopFirst()
	stopFirst()
	notified(t, l, "order:1", second)
}

func TestAWatchSurvivesARestartOfTheServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t), locking.SingleOptions{})
	w, stop, err := l.Watch(t.Context(), []string{"order:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	notified(t, l, "order:1", w)
	server.Kill()
	server.Restart(t)
	notified(t, l, "order:1", w)
}

func TestAWatchSurvivesAnOutageThatItBeganIn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t, deadlines), locking.SingleOptions{})
	server.Kill()
	began := time.Now()
	w, stop, err := l.Watch(t.Context(), []string{"order:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if took := time.Since(began); took > time.Second {
		t.Errorf("Watch took %v: it waited for the server", took)
	}
	server.Restart(t)
	notified(t, l, "order:1", w)
}

func TestWatchesAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t), locking.SingleOptions{})
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				_, stop, err := l.Watch(t.Context(), []string{"order:1"})
				if err != nil {
					t.Error(err)
					return
				}
				stop()
			}
		})
	}
	w, stop, err := l.Watch(t.Context(), []string{"order:1", "order:2"})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for range 10 {
		notified(t, l, "order:1", w)
	}
	close(done)
	wg.Wait()
}

func TestALockerThatIsClosedWatchesNoMore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t), locking.SingleOptions{})
	_, stop, err := l.Watch(t.Context(), []string{"order:1"})
	if err != nil {
		t.Fatal(err)
	}
	lease := acquire(t, l, locking.Options{}, "order:1")
	for range 2 {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if _, _, err := l.Watch(t.Context(), []string{"order:1"}); err == nil {
		t.Error("a watch of a locker that is closed")
	}
	stop()
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("a lease must outlive its locker: %v", err)
	}
	release(t, lease)
}
