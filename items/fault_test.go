package items_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/items"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

func TestItemsWaitWhileTheLockServerIsAway(t *testing.T) {
	t.Parallel()
	var ran counts
	h := handler(func(_ context.Context, order string) error { ran.add(order); return nil })
	locks := redistest.Start(t)
	s := newSite(t, h, func(c *worker.Config) { c.LockRedis = worker.Redis{Addr: locks.Addr()} })
	locks.Stop()
	run := ordersFrom(20)
	task := s.enqueue("run", run)
	s.until("the task waits", func() bool { return s.log.has("Redis cannot be reached or refuses commands") })
	locks.Restart(t)
	info := s.await(task, asynq.TaskStateCompleted)
	ran.wantAll(t, run, 1, nil)
	if info.Retried != 0 {
		t.Errorf("the outage has used up %d retries", info.Retried)
	}
}

func TestALostReplyRepeatsNoItem(t *testing.T) {
	t.Parallel()
	var ran counts
	h := handler(func(_ context.Context, order string) error {
		if ran.add(order) <= 2 && order == "5" {
			return errBoom
		}
		return nil
	})
	var cut atomic.Int64 // every second reply about items is lost
	s := newSite(t, h, func(c *worker.Config) {
		client := redis.NewClient(&redis.Options{Addr: c.Redis.Addr})
		t.Cleanup(func() { _ = client.Close() })
		client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if len(cmd.Args()) > 3 && cmd.Args()[2] == 1 && err == nil && cut.Add(1)%2 == 1 {
				return redistest.Fail(cmd, io.ErrUnexpectedEOF)
			}
			return err
		}))
		c.Redis, c.LockRedis = worker.Redis{Client: client}, c.Redis
	})
	run := ordersFrom(40)
	s.await(s.enqueue("run", run), asynq.TaskStateCompleted)
	ran.wantAll(t, run, 1, map[string]int{"5": 3})
	if cut.Load() < 6 {
		t.Errorf("only %d calls were about items", cut.Load())
	}
}

func TestAnItemThatHasLostItsLeaseHasFailed(t *testing.T) {
	t.Parallel()
	var ran counts
	var s *site
	h := handler(func(ctx context.Context, order string) error {
		if ran.add(order) == 1 && order != "0" { // another holder takes its key away
			lock, other := "railtoken:lock:{order:"+order+"}", "0123456789012345678901234567890123456789"
			if err := s.client.Set(ctx, lock, other, 200*time.Millisecond).Err(); err != nil {
				return err
			}
			if lease, _ := locking.FromContext(ctx); order == "2" {
				lease.MarkCommitted()
			}
		}
		return nil
	})
	s = newSite(t, h)
	run := ordersFrom(3)
	s.await(s.enqueue("run", run), asynq.TaskStateCompleted)
	ran.wantAll(t, run, 1, map[string]int{"1": 2}) // the effect of 2 was committed under its token
}

func TestATimeoutInterruptsItemsWithoutCountingTheirTries(t *testing.T) {
	t.Parallel()
	var ran counts
	h := handler(func(ctx context.Context, order string) error {
		if ran.add(order) == 1 && order == "1" {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	})
	h.Tries = 1
	s := newSite(t, h)
	run := ordersFrom(4)
	info := s.await(s.enqueue("run", run, asynq.Timeout(time.Second)), asynq.TaskStateCompleted)
	ran.wantAll(t, run, 1, map[string]int{"1": 2})
	if info.Retried != 1 {
		t.Errorf("the task was retried %d times, want 1", info.Retried)
	}
}

func TestItemsRunOnAnAttachedServerAndACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3).Client(t)
	locks, err := attach.New(cluster, asynq.Config{
		Concurrency: 4, LogLevel: asynq.FatalLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
	}, attach.Options{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var ran counts
	h := handler(func(_ context.Context, order string) error {
		if ran.add(order) <= 2 && order == "3" {
			return errBoom
		}
		return nil
	})
	h.Tries = 2
	run, err := items.New(locks, h)
	if err != nil {
		t.Fatal(err)
	}
	mux := asynq.NewServeMux()
	mux.Handle("run", run)
	server := asynq.NewServerFromRedisClient(locks.Client(), locks.Config())
	if err := server.Start(mux); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		locks.Stop()
		server.Shutdown()
		_ = locks.Close()
	})
	lease, err := locks.Locker().Acquire(t.Context(), []string{orderKey("7")}, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	producer, err := worker.NewClient(worker.Redis{Client: cluster})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = producer.Close() })
	orders := ordersFrom(20)
	info, err := producer.Enqueue(t.Context(), "run", orders, asynq.Retention(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	task := delayqueue.Task{Queue: info.Queue, ID: info.ID}
	s := &site{T: t, producer: producer}
	s.until("the others are done", func() bool {
		r := s.report(task)
		return r.Done == 18 && r.Refused == 1 && r.Failed == 1
	})
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Queue().Wake(t.Context(), orderKey("7"), delayqueue.WakeOptions{}); err != nil {
		t.Fatal(err)
	}
	s.until("it has ended", func() bool { r := s.report(task); return r.Done == 19 && r.Items[0].Tries == 2 })
	s.until("it is replayed", func() bool {
		n, err := items.Replay(t.Context(), locks.Queue(), task)
		if err != nil && !errors.Is(err, delayqueue.ErrNotArchived) {
			t.Fatal(err)
		}
		return n == 1 && err == nil
	})
	s.until("it is all done", func() bool { return s.report(task).Done == 20 })
	ran.wantAll(t, orders, 1, map[string]int{"3": 3})
}

func TestALimitEndsTheWaitForAnItem(t *testing.T) {
	t.Parallel()
	var ran counts
	h := handler(func(_ context.Context, order string) error { ran.add(order); return nil })
	h.Strategy = middleware.Requeue{Limits: delayqueue.Limits{Conflicts: 1}}
	s := newSite(t, h)
	release := s.hold(orderKey("1"))
	run := ordersFrom(3)
	task := s.enqueue("run", run)
	s.until("it is archived", func() bool {
		if _, err := s.worker.Queue().Wake(t.Context(), orderKey("1"), delayqueue.WakeOptions{}); err != nil {
			t.Fatal(err)
		}
		return s.info(task).State == asynq.TaskStateArchived
	})
	if conflict, err := middleware.ParseConflict(s.info(task).Result); err != nil || conflict.Key != orderKey("1") {
		t.Errorf("the result has the conflict %+v, %v", conflict, err)
	}
	release()
	if n, err := items.Replay(t.Context(), s.producer.Queue(), task); err != nil || n != 1 {
		t.Fatalf("the replay is of %d items, %v", n, err)
	}
	s.await(task, asynq.TaskStateCompleted)
	ran.wantAll(t, run, 1, nil)
}
