package items_test

import (
	"testing"

	"github.com/railtoken/railtoken/internal/testing/locktaskstest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestASuccessCountsAfterAStallOfRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locker := func() locking.Locker {
		l, err := locking.NewSingle(server.Client(t), locking.SingleOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	locktaskstest.Stall(t, locking.NewGate(locker(), locking.GateOptions{}), locker(), server.Pause, server.Resume)
}
