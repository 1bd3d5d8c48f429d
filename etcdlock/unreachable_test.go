package etcdlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/internal/testing/process"
	"github.com/railtoken/railtoken/locking"
)

func TestErrorsNameEndpointsWithoutCredentials(t *testing.T) {
	t.Parallel()
	addrs, err := process.FreeAddrs(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	l := newLocker(t, []string{addrs[0], "http://alice:hunter2@" + addrs[1] + "?token=hunter3"}, etcdlock.Options{})
	for timeout, want := range map[time.Duration]error{100 * time.Millisecond: context.DeadlineExceeded, time.Minute: locking.ErrUnavailable} {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		_, err := l.Acquire(ctx, []string{"order"}, locking.Options{})
		cancel()
		if !errors.Is(err, want) {
			t.Fatalf("within %v Acquire says %v", timeout, err)
		}
		for _, addr := range addrs {
			if !strings.Contains(err.Error(), addr) {
				t.Errorf("the error does not name %s: %v", addr, err)
			}
		}
		for _, secret := range []string{"alice", "hunter"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error has the credentials: %v", err)
			}
		}
	}
}

// lateContext has ended, and does not know it yet: its timer is about to run. A server may be quicker than it.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

func TestADeadlineIsNotTakenForAnOutage(t *testing.T) {
	t.Parallel()
	l := newLocker(t, sharedEtcd(t), etcdlock.Options{Prefix: "late/"})
	_, err := l.Acquire(lateContext{t.Context()}, []string{"order"}, locking.Options{})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locking.ErrUnavailable) {
		t.Errorf("after the deadline Acquire says %v", err)
	}
}
