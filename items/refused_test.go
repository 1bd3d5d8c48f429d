package items_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/items"
	"github.com/railtoken/railtoken/worker"
)

// onEach runs a test where tasks and locks are on one Redis, on two, and on a Cluster.
func onEach(t *testing.T, h func() items.Handler[warehouseRun, string], test func(s *site)) {
	t.Helper()
	for _, on := range []string{"one Redis", "two", "a Cluster"} {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			var client redis.UniversalClient
			var tasks, locks worker.Redis
			if on == "a Cluster" {
				cluster := redistest.StartCluster(t, 3)
				client, tasks.Cluster = cluster.Client(t), cluster.Addrs()
			} else {
				server := redistest.Start(t)
				client, tasks.Addr = server.Client(t), server.Addr()
			}
			if on == "two" {
				locks.Addr = redistest.Start(t).Addr()
			}
			test(newSiteOn(t, tasks, client, h(), func(c *worker.Config) { c.LockRedis = locks }))
		})
	}
}

func TestTheFirstReleasedKeyBringsTheTaskBack(t *testing.T) {
	t.Parallel()
	var ran counts
	h := func() items.Handler[warehouseRun, string] {
		return handler(func(_ context.Context, order string) error { ran.add(order); return nil })
	}
	onEach(t, h, func(s *site) {
		// Those that have been held for longer are released first, which is not what the task expects.
		run := warehouseRun{}
		var release []func()
		for _, name := range []string{"oldest", "free", "older", "younger"} {
			order := s.Name() + "/" + name
			run.Orders = append(run.Orders, order)
			if name != "free" {
				release = append(release, s.hold(orderKey(order)))
			}
		}
		task := s.enqueue("run", run)
		for n, name := range []string{"oldest", "older", "younger"} {
			s.until(fmt.Sprintf("it waits after %d items", n+1), func() bool {
				return s.report(task).Done == n+1 && s.info(task).State == asynq.TaskStateRetry
			})
			released := time.Now()
			release[n]()
			s.until("the item runs", func() bool { return ran.of(s.Name()+"/"+name) == 1 })
			took := time.Since(released)
			s.Logf("the item of the %s hold ran %v after the release", name, took)
			if took > 2*time.Second {
				s.Errorf("that is more than 2 s")
			}
		}
		info := s.await(task, asynq.TaskStateCompleted)
		ran.wantAll(s.T, run, 1, nil)
		if info.Retried != 0 {
			s.Errorf("waiting has used up %d retries", info.Retried)
		}
	})
}
