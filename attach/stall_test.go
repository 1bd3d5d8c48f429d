package attach_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// Redis stands still for longer than the TTL while 40 tasks of 40 keys run, which end one after another, before, in and
// after the stall.
func TestASuccessCountsAfterAStallLongerThanItsTTL(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"on the Redis of the tasks", "apart", "on three servers"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			const tasks, ttl, stall = 40, 3 * time.Second, 4 * time.Second
			server := redistest.Start(t)
			r := rigOn(t, server)
			servers := []*redistest.Server{server}
			opts := attach.Options{TTL: ttl}
			switch where {
			case "apart":
				other := redistest.Start(t)
				servers = append(servers, other)
				single, err := locking.NewSingle(other.Client(t), locking.SingleOptions{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = single.Close() })
				opts.Locker = locking.NewGate(single, locking.GateOptions{})
			case "on three servers":
				nodes := make([]*redis.Options, 3)
				for i := range nodes {
					node := redistest.Start(t)
					servers = append(servers, node)
					nodes[i] = &redis.Options{Addr: node.Addr()}
				}
				redlock, err := locking.NewRedlock(nodes, locking.RedlockOptions{Guard: locking.GuardOff})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = redlock.Close() })
				opts.Locker = redlock
			}
			a := r.attach(asynq.Config{Concurrency: tasks}, opts)
			var runs atomic.Int64
			var started sync.WaitGroup
			started.Add(tasks)
			stalled := make(chan struct{})
			r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
				if runs.Add(1) > tasks {
					return nil
				}
				started.Done()
				<-stalled
				n, _ := strconv.Atoi(string(task.Payload()))
				<-time.After(time.Duration(n) * 120 * time.Millisecond)
				return nil
			})))
			var all []*asynq.TaskInfo
			for n := range tasks {
				all = append(all, r.enqueue(strconv.Itoa(n), asynq.Retention(time.Hour), asynq.MaxRetry(1)))
			}
			started.Wait()
			for _, s := range servers {
				s.Pause()
			}
			close(stalled)
			<-time.After(stall)
			for _, s := range servers {
				s.Resume()
			}
			for _, task := range all {
				r.settled(task, asynq.TaskStateCompleted)
			}
			if n := runs.Load() - tasks; n != 0 {
				t.Errorf("%d of %d tasks ran again", n, tasks)
			}
		})
	}
}
