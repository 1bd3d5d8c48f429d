package middleware

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
)

// unwatched cannot notify of releases.
type unwatched struct{ asked int }

func (u *unwatched) Watch(context.Context, []string) (<-chan struct{}, func(), error) {
	u.asked++
	return nil, nil, errors.New("no subscription")
}

// Without notifications a task tries again after its delays. It does not ask for them before each attempt, nor fill the log.
func TestAWaitGoesOnWithoutNotifications(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	watcher := &unwatched{}
	l := &lock{Options: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, Server: &taskrun.Server{}, watcher: watcher}
	r := &run{lock: l, keys: []string{"k"}}
	for range 3 {
		if err := r.waitInSlot(t.Context(), Decision{Outcome: WaitInSlot, Delay: time.Microsecond, WaitUntil: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "releases of keys cannot be watched"); n != 1 || watcher.asked != 1 {
		t.Errorf("it has asked for notifications %d times, and the log says so %d times", watcher.asked, n)
	}
	r.stopWaiting()
}

func TestAWaitForKeysEndsWithALeaseAHolderOrTheTask(t *testing.T) {
	t.Parallel()
	lease := leaseOn(t, miniredis.RunT(t), "k")
	r := &run{took: time.Second, freed: time.Now()}
	if got, held, err := r.endWait(t.Context(), lease, nil); got != lease || held != nil || err != nil || r.lease != lease || r.took != 0 || !r.freed.IsZero() {
		t.Errorf("with a lease: %v, %v, %v; it has taken %v", got, held, err, r.took)
	}
	refusal := &locking.HeldError{Key: "k"}
	if got, held, err := r.endWait(t.Context(), nil, refusal); got != nil || held != refusal || err != nil {
		t.Errorf("with a holder: %v, %v, %v", got, held, err)
	}
	over, end := context.WithCancelCause(t.Context())
	cancelled := &CancelledError{By: "ann"}
	end(cancelled)
	if got, held, err := r.endWait(over, nil, refusal); got != nil || held != nil || !errors.Is(err, cancelled) {
		t.Errorf("a task that was cancelled: %v, %v, %v", got, held, err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
