package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/worker"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

func TestEveryStrategyKeepsTheBooks(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"failfast", "wait", "requeue", "default"} {
		t.Run(strategy, func(t *testing.T) { // one after another, because each has an embedded Redis to itself
			r := newRun(t, strategy, generateOrders(60, 1))
			rep, err := r.do(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if faults := rep.faults(); len(faults) > 0 || rep.Stopped != nil {
				t.Errorf("%q, stopped: %v, %q", faults, rep.Stopped, rep.Notes)
			}
			if rep.Enqueued != 120 || rep.Done+rep.Refused != 120 || rep.Met.total() == 0 {
				t.Errorf("%d enqueued, %d done, %d refused, %d conflicts", rep.Enqueued, rep.Done, rep.Refused, rep.Met.total())
			}
			if strategy == "failfast" {
				if rep.Refused == 0 || rep.Refused != rep.Met.FailFast || !strings.Contains(rep.Example, "was held by") {
					t.Errorf("%d refused, %d seen, for example %q", rep.Refused, rep.Met.FailFast, rep.Example)
				}
			} else if rep.Refused != 0 {
				t.Errorf("%d refused, for example %q", rep.Refused, rep.Example)
			}
			// Without a wake a task would wait for its timer, a second after the TTL of 30 s.
			if longest := rep.Met.Durations.percentile(100); longest > 20*time.Second {
				t.Errorf("a task waited for %v: it was not woken", longest)
			}
			expectNoKeys(t, r.Config.Redis.Addr, "asynq:{*", "asynq:queues", "railtoken:waiters:*")
		})
	}
}

// asynq archives a task on its last attempt if it does not learn in time that the task is done.
func TestADoneTaskThatIsArchivedCountsOnce(t *testing.T) {
	t.Parallel()
	r := newRun(t, "", nil)
	s, err := openStore(t.Context(), r.DB, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	conn := connect(r.Config.Redis)
	defer conn.Close()
	a := newArchives(conn, r.ID)
	queue := r.ID.auditQueue()
	tasks := asynq.NewClientFromRedisClient(conn)
	for _, id := range []string{"done", "waiting"} {
		if _, err := tasks.Enqueue(asynq.NewTask(auditType, nil), asynq.Queue(queue), asynq.TaskID(id)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.commit(t.Context(), effect{TaskID: "done", Type: auditType}); err != nil {
		t.Fatal(err)
	}
	if err := a.inspect.ArchiveTask(queue, "done"); err != nil {
		t.Fatal(err)
	}
	if n, err := endedTasks(t.Context(), s, a, 2); n != 1 || err != nil {
		t.Errorf("%d tasks have ended while one of two waits, %v", n, err)
	}
	if err := a.inspect.ArchiveTask(queue, "waiting"); err != nil {
		t.Fatal(err)
	}
	if n, err := endedTasks(t.Context(), s, a, 2); n != 2 || err != nil {
		t.Errorf("%d of two tasks have ended, %v", n, err)
	}
}

func TestWithoutLocksTheBooksAreWrong(t *testing.T) {
	t.Parallel()
	r := newRun(t, "", generateOrders(60, 1))
	r.NoLock = true
	r.Work = span{20 * time.Millisecond, 25 * time.Millisecond}
	rep, err := r.do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if rep.Overlaps == 0 || rep.Balance.Lost == 0 || rep.Done != 120 || rep.Balance.Doubled != 0 || rep.status() != exitWrong {
		t.Errorf("%d overlaps, %+v, %d done, status %d", rep.Overlaps, rep.Balance, rep.Done, rep.status())
	}
}

func TestAStoppedRunReportsWhatItReached(t *testing.T) {
	t.Parallel()
	r := newRun(t, "", generateOrders(500, 1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.Progress = progressFunc(func(ended int) {
		if ended > 0 {
			cancel()
		}
	})
	rep, err := r.do(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Done == 0 || rep.Unfinished == 0 || rep.Done+rep.Unfinished != 1000 || rep.status() != exitInterrupted {
		t.Errorf("%d done, %d not reached, %d lost, status %d: %v", rep.Done, rep.Unfinished, rep.Lost, rep.status(), rep.faults())
	}
	expectNoKeys(t, r.Config.Redis.Addr, "asynq:{*", "asynq:queues")
}

func TestATimeoutFailsTheRun(t *testing.T) {
	t.Parallel()
	r := newRun(t, "", generateOrders(20, 1))
	r.Work = span{time.Minute, time.Minute} // longer than the workers wait at their end
	r.Config.ShutdownTimeout = time.Millisecond
	ctx, cancel := context.WithCancelCause(t.Context())
	r.Progress = progressFunc(func(int) { cancel(errTimeout) })
	rep, err := r.do(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(rep.Stopped, errTimeout) || rep.status() != exitWrong || rep.Done != 0 {
		t.Errorf("stopped by %v, status %d, %d done", rep.Stopped, rep.status(), rep.Done)
	}
}

// A watcher with no workers of its own sees what two serving processes have done; producing twice changes nothing.
func TestSeveralProcessesShareARun(t *testing.T) {
	t.Parallel()
	orders := generateOrders(40, 1)
	r := newRun(t, "", orders)
	serving, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan int, 2)
	for range cap(served) {
		p := &program{options: options{Run: r.ID, DB: r.DB, Work: r.Work, Workers: 1}, out: io.Discard, errOut: io.Discard, env: r.Config}
		p.env.Queues = nil
		go func() {
			status, err := p.serve(serving)
			if err != nil {
				t.Error(err)
			}
			served <- status
		}()
	}
	p := &program{options: options{Run: r.ID, N: 40, Seed: 1}, out: io.Discard, env: r.Config}
	if status, err := p.produce(t.Context()); status != exitOK || err != nil {
		t.Errorf("produce: status %d, %v", status, err)
	}
	r.Workers = 0
	rep, err := r.do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if rep.Done != 80 || len(rep.faults()) > 0 || !rep.Elsewhere {
		t.Errorf("%d done, %q", rep.Done, rep.faults())
	}
	stop()
	for range cap(served) {
		if status := <-served; status != exitOK {
			t.Errorf("a serving process ends with status %d", status)
		}
	}
}

// newRun returns a run on a Redis of its own.
func newRun(t *testing.T, strategy string, orders []order) *run {
	t.Helper()
	server, err := embeddedredis.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	o := options{Strategy: strategy, Concurrency: 16}
	cfg, err := o.config(worker.Config{Redis: worker.Redis{Addr: server.Addr()}}, testRun)
	if err != nil {
		t.Fatal(err)
	}
	return &run{
		ID: testRun, Config: cfg, Workers: 2, Orders: orders, Work: span{time.Millisecond, 10 * time.Millisecond}, SingleTry: 10,
		DB: filepath.Join(t.TempDir(), "orders.db"), Progress: progressFunc(func(int) {}),
	}
}

// expectNoKeys checks that a run leaves nothing of the kind behind. The mark of a fetch whose reply was late ends by itself, a
// minute later.
func expectNoKeys(t *testing.T, addr string, patterns ...string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	for _, pattern := range patterns {
		keys, err := client.Keys(t.Context(), pattern).Result()
		keys = slices.DeleteFunc(keys, func(key string) bool {
			ttl := client.TTL(t.Context(), key).Val()
			return strings.Contains(key, "}:recalled:") && ttl > 0 && ttl <= time.Minute
		})
		if err != nil || len(keys) > 0 {
			t.Errorf("left behind: %q, %v", keys, err)
		}
	}
}

type progressFunc func(ended int)

func (f progressFunc) show(ended int) { f(ended) }
func (progressFunc) close()           {}

// With lanes most allocations have keys in several of them.
func TestLanesKeepTheBooks(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	r := newRun(t, "", generateOrders(300, 1))
	r.Config.Redis = worker.Redis{Cluster: cluster.Addrs(), Lanes: 16}
	rep, err := r.do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if faults := rep.faults(); len(faults) > 0 || rep.Stopped != nil {
		t.Errorf("%q, stopped: %v, %q", faults, rep.Stopped, rep.Notes)
	}
	if rep.Enqueued != 600 || rep.Done != 600 || rep.Met.total() == 0 {
		t.Errorf("%d enqueued, %d done, %d conflicts", rep.Enqueued, rep.Done, rep.Met.total())
	}
	if longest := rep.Met.Durations.percentile(100); longest > 20*time.Second {
		t.Errorf("a task waited for %v: it was not woken", longest)
	}
	client := cluster.Client(t)
	if lanes, err := client.Get(t.Context(), "railtoken:lanes").Result(); err != nil || lanes != "16" {
		t.Errorf("the run had %q lanes, %v", lanes, err)
	}
	producer, err := newClient(r.Config.Redis, "other")
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	for taskType, payload := range map[string]any{auditType: auditPayload{OrderID: "1"}, allocateType: allocatePayload{OrderID: "1"}, cancelType: cancelPayload{OrderID: "1"}} {
		info, err := producer.Enqueue(t.Context(), taskType, payload, asynq.Queue("audit-other"))
		if err != nil || !strings.HasPrefix(info.Queue, "audit-other@") {
			t.Errorf("a task of type %s is in %v, %v, want a lane", taskType, info, err)
		} else if err := client.SRem(t.Context(), "asynq:queues", info.Queue).Err(); err != nil {
			t.Fatal(err)
		}
	}
	queues, err := client.SMembers(t.Context(), "asynq:queues").Result()
	if err != nil || len(queues) > 0 {
		t.Errorf("%q are left, %v", queues, err)
	}
}

// A cancelled order's allocation is stopped, or it comes after the cancellation and reserves nothing, or it was done before.
func TestCancelledOrdersKeepTheBooks(t *testing.T) {
	t.Parallel()
	r := newRun(t, "", generateOrders(60, 1))
	r.Cancel = 3
	rep, err := r.do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if faults := rep.faults(); len(faults) > 0 || rep.Stopped != nil {
		t.Errorf("%q, stopped: %v, %q", faults, rep.Stopped, rep.Notes)
	}
	if rep.Enqueued != 140 || rep.Done+rep.Superseded != 140 {
		t.Errorf("%d enqueued, %d done, %d stopped", rep.Enqueued, rep.Done, rep.Superseded)
	}
}

func TestACancellationStopsTheAllocation(t *testing.T) {
	t.Parallel()
	r := newRun(t, "", generateOrders(1, 1))
	r.Cancel, r.Work = 1, span{time.Second, time.Second}
	s, err := openStore(t.Context(), r.DB, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	client, err := worker.NewClient(r.Config.Redis)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn := connect(r.Config.Redis)
	defer conn.Close()
	c := newCrew(r.ID, s, r.Work, false)
	if err := c.start(t.Context(), r.Config, 1); err != nil {
		t.Fatal(err)
	}
	p, o := &producer{client: client, run: r.ID}, r.Orders[0]
	err = p.add(t.Context(), allocateType, allocatePayload{o.ID, o.parts()}, asynq.Queue(r.ID.allocateQueue()), asynq.TaskID(allocateID(o.ID)))
	if err != nil {
		t.Fatal(err)
	}
	within := func(what string, done func() bool) {
		t.Helper()
		for began := time.Now(); !done(); <-time.After(5 * time.Millisecond) {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("not within 20 s: %s", what)
			}
		}
	}
	within("the allocation runs", func() bool { return c.tracker.seen().Runs == 1 })
	if err := p.add(t.Context(), cancelType, cancelPayload{o.ID}, asynq.Queue(r.ID.cancelQueue()), asynq.TaskID(cancelID(o.ID))); err != nil {
		t.Fatal(err)
	}
	within("the cancellation is done", func() bool {
		done, err := s.has(t.Context(), cancelID(o.ID))
		return err == nil && done
	})
	if err := c.shutdown(); err != nil {
		t.Fatal(err)
	}
	rep, err := r.check(t.Context(), s, newArchives(conn, r.ID), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Superseded != 1 || rep.Done != 1 || rep.Lost != 1 { // nobody has enqueued its audit
		t.Errorf("%d stopped, %d done, %d lost: %q", rep.Superseded, rep.Done, rep.Lost, rep.Notes)
	}
}
