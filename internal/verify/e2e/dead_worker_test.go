//go:build thorough

package e2e_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/worker"
)

// asynq's recoverer looks once a minute for tasks whose leases ended 30 s ago. The network of the server that lives fails
// for 300 ms each 20 s.
func TestADeadWorkersTaskIsRecoveredBesideAFailingNetwork(t *testing.T) {
	t.Parallel()
	server, database := startShared(t), redistest.Start(t)
	db := database.Client(t)
	network := redistest.NewProxy(t, server.Addr())
	producer, err := worker.NewClient(at(server))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = producer.Close() })
	dies := startChild(t, server.Addr(), database.Addr(), true)
	enqueue(t, producer, "default", 1, 1)
	until(t, "the task runs", func() bool { return db.LLen(t.Context(), "started").Val() == 1 })
	lives := startChild(t, network.Addr(), database.Addr(), false)

	var failed atomic.Int64
	fails := make(chan struct{})
	go func() {
		defer close(fails)
		for {
			network.Cut(func(_, _ []byte) bool {
				failed.Add(1)
				return true
			})
			<-time.After(300 * time.Millisecond)
			network.Cut(nil)
			select {
			case <-t.Context().Done():
				return
			case <-time.After(20 * time.Second):
			}
		}
	}()
	t.Cleanup(func() { <-fails })
	dies.kill()
	killed := time.Now()
	for db.HLen(t.Context(), "effects").Val() == 0 {
		if time.Since(killed) > 130*time.Second {
			t.Fatalf("the task of a killed worker has not run again within 130 s; %d replies were lost", failed.Load())
		}
		<-time.After(100 * time.Millisecond)
	}
	t.Logf("the task of a killed worker has run again after %v; %d replies were lost", time.Since(killed).Round(time.Millisecond), failed.Load())
	lives.stop()
}
