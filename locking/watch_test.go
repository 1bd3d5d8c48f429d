package locking_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/redistest"
	"github.com/railtoken/railtoken/locking"
)

// noticed takes and releases a key, with interest shown in it, until every watch has a notice.
func noticed(t *testing.T, l *locking.Single, key string, watches ...*locking.Watch) {
	t.Helper()
	for began := time.Now(); len(watches) > 0; {
		lease := eventually(t, l, key)
		if _, err := l.Acquire(t.Context(), []string{key}, locking.Options{Notify: time.Minute}); !errors.Is(err, locking.ErrHeld) {
			t.Fatalf("acquire: %v, want ErrHeld", err)
		}
		release(t, lease)
		select {
		case <-watches[0].C:
			watches = watches[1:]
		case <-time.After(50 * time.Millisecond):
			if time.Since(began) > patience {
				t.Fatalf("no notice of a release came within %v", patience)
			}
		}
	}
}

func TestEveryWatchOfAKeyIsNotified(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t), locking.SingleOptions{})
	var watches []*locking.Watch
	for _, keys := range [][]string{{"order:1"}, {"order:2", "order:1"}, {"order:1", "order:1"}} {
		w, err := l.Watch(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		watches = append(watches, w)
	}
	other, err := l.Watch(t.Context(), []string{"order:2"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	noticed(t, l, "order:1", watches...)
	select {
	case <-other.C:
		t.Error("a notice for a key that was not released")
	default:
	}
}

func TestAWatchThatIsClosedLeavesTheOthers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t), locking.SingleOptions{})
	var watches []*locking.Watch
	for range 2 {
		w, err := l.Watch(t.Context(), []string{"order:1"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		watches = append(watches, w)
	}
	watches[0].Close()
	watches[0].Close()
	noticed(t, l, "order:1", watches[1])
}

func TestAWatchSurvivesARestartOfTheServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t), locking.SingleOptions{})
	w, err := l.Watch(t.Context(), []string{"order:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	noticed(t, l, "order:1", w)
	server.Kill()
	server.Restart(t)
	noticed(t, l, "order:1", w)
}

func TestAWatchOnAServerThatIsGoneWaitsForNobodyAndWorksWhenItIsBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t, deadlines), locking.SingleOptions{})
	server.Kill()
	began := time.Now()
	w, err := l.Watch(t.Context(), []string{"order:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if took := time.Since(began); took > time.Second {
		t.Errorf("Watch took %v: it waited for the server", took)
	}
	server.Restart(t)
	noticed(t, l, "order:1", w)
}

func TestWatchesMayComeAndGoAtTheSameTime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t), locking.SingleOptions{})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				w, err := l.Watch(t.Context(), []string{"order:1"})
				if err != nil {
					t.Error(err)
					return
				}
				w.Close()
			}
		})
	}
	w, err := l.Watch(t.Context(), []string{"order:1", "order:2"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for range 10 {
		noticed(t, l, "order:1", w)
	}
	close(stop)
	wg.Wait()
}

func TestALockerThatIsClosedWatchesNoMore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t), locking.SingleOptions{})
	w, err := l.Watch(t.Context(), []string{"order:1"})
	if err != nil {
		t.Fatal(err)
	}
	lease := acquire(t, l, locking.Options{}, "order:1")
	for range 2 {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if _, err := l.Watch(t.Context(), []string{"order:1"}); err == nil {
		t.Error("a watch of a locker that is closed")
	}
	w.Close()
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("a lease must outlive its locker: %v", err)
	}
	release(t, lease)
}
