package pglock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/internal/testing/lockhistorytest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

func TestLocksAreLinearizableUnderFaults(t *testing.T) {
	t.Parallel()
	server := dbtest.StartPostgres(t)
	d := newDatabaseOn(t, server)
	h := lockhistorytest.New()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for client := range 5 {
		var l locking.Locker = d.locker(t, pglock.Options{})
		if client%2 == 0 {
			l = locking.NewGate(l, locking.GateOptions{HandOffs: 2})
		}
		all.Go(func() {
			for ctx.Err() == nil {
				err := h.Use(ctx, client, l, "key", 2*time.Millisecond, locking.Options{TTL: time.Second})
				if err != nil && ctx.Err() == nil && !errors.Is(err, locking.ErrUnavailable) && !errors.Is(err, locking.ErrLost) {
					t.Errorf("client %d: %v", client, err)
				}
			}
		})
	}
	h.Await(t, 10)
	server.Kill(t)
	server.Restart(t)
	h.Await(t, 10)
	server.Pause(t)
	<-time.After(1200 * time.Millisecond) // longer than the TTL
	server.Resume()
	h.Await(t, 10)
	server.Kill(t)
	server.Restart(t)
	h.Await(t, 10)
	stop()
	all.Wait()
	h.Judge(t, linearizable)
}
