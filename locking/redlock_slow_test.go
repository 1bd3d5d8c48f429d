package locking_test

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// The renewals of many leases failed together when servers were slow for longer than NodeTimeout, and came back together soon after.
func TestARenewalOutlastsAShortStopOfTheServers(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 5)
	l := newRedlock(t, nodes, locking.RedlockOptions{Guard: locking.GuardOff})
	joined(t, l, admins(t, servers))
	lease := acquire(t, l, locking.Options{}, "order:1")
	for _, s := range servers {
		s.Pause()
	}
	renewed := make(chan error, 2)
	for range 2 { // the second is sent when the first is overdue
		go func() { renewed <- lease.Renew(t.Context()) }()
		<-time.After(6 * locking.DefaultNodeTimeout)
	}
	for _, s := range servers {
		s.Resume()
	}
	for range 2 {
		if err := <-renewed; err != nil {
			t.Errorf("renew: %v", err)
		}
	}
}
