package items_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/items"
	"github.com/railtoken/railtoken/worker"
)

// callCounter counts round trips for tasks: commands that are sent by themselves, and pipelines. Heartbeats, and the
// fetches of an idle server, do not count.
type callCounter struct{ n atomic.Int64 }

func (*callCounter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *callCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil || !isCounted(cmd) {
			return err
		}
		c.n.Add(1)
		return nil
	}
}

func (c *callCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) > 0 && isCounted(cmds[0]) {
			c.n.Add(1)
		}
		return next(ctx, cmds)
	}
}

// isCounted reports whether an answered command belongs to a task: it names an item, the task itself, or it has brought
// the task.
func isCounted(cmd redis.Cmder) bool {
	for _, arg := range cmd.Args() {
		text, _ := arg.(string)
		// A fetch names what the names of all tasks begin with. It is answered with nil when there is no task.
		if strings.Contains(text, "}:t:") || strings.Contains(text, "lock:{order") {
			return true
		}
	}
	return false
}

// countCalls returns the round trips of what enqueue adds: the median of some rounds. A round has ended when ended,
// unless it is nil, has received a value and the queue is empty.
func countCalls(t *testing.T, s *site, count *callCounter, rounds int, enqueue func(), ended <-chan struct{}) int64 {
	t.Helper()
	round := func() {
		enqueue()
		if ended != nil {
			<-ended
		}
		s.until("the queue is empty", s.idle)
	}
	round() // loads the scripts, and finds out how long items take
	calls := make([]int64, rounds)
	for i := range calls {
		count.n.Store(0)
		round()
		calls[i] = count.n.Load()
	}
	slices.Sort(calls)
	return calls[rounds/2]
}

// idle reports whether no task is active or pending.
func (s *site) idle() bool {
	active := s.client.LLen(s.Context(), "asynq:{default}:active")
	pending := s.client.LLen(s.Context(), "asynq:{default}:pending")
	return active.Val()+pending.Val() == 0
}

func TestItemsCostAFewCallsInAll(t *testing.T) {
	const k, tasks = 40, 20
	for name, hold := range map[string]time.Duration{"instant": 0, "5 ms": 5 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{}, 1)
			h := handler(func(context.Context, string) error {
				if hold > 0 {
					<-time.After(hold)
				}
				return nil
			})
			h.Finish = func(context.Context, warehouseRun, items.Report) error { ended <- struct{}{}; return nil }
			count := &callCounter{}
			s := newSite(t, h, func(c *worker.Config) { counted(t, c, count) })
			run := ordersFrom(k)
			calls := countCalls(t, s, count, tasks, func() {
				if _, err := s.producer.Enqueue(t.Context(), "run", run); err != nil {
					t.Fatal(err)
				}
			}, ended)
			t.Logf("%d calls for a task of %d items that are %s", calls, k, name)
			if hold == 0 && calls > 8+k/4 {
				t.Errorf("%d calls for a task of %d items, want at most %d", calls, k, 8+k/4)
			}
		})
	}
}

// A task for each of the items is what they are compared with.
func TestATaskEachCostsMoreCalls(t *testing.T) {
	const k, rounds = 40, 5
	count := &callCounter{}
	h := handler(func(context.Context, string) error { return nil })
	s := newSite(t, h, func(c *worker.Config) { counted(t, c, count) })
	calls := countCalls(t, s, count, rounds, func() {
		for _, order := range ordersFrom(k).Orders {
			if _, err := s.producer.Enqueue(t.Context(), "audit", order); err != nil {
				t.Fatal(err)
			}
		}
	}, nil)
	t.Logf("%d calls for %d tasks", calls, k)
	if calls < 8+k/4 {
		t.Errorf("%d calls for %d tasks: as few as items may cost", calls, k)
	}
}

// counted has the worker's clients counted.
func counted(t *testing.T, c *worker.Config, count *callCounter) {
	t.Helper()
	addr := c.Redis.Addr
	tasks := redis.NewClient(&redis.Options{Addr: addr})
	locks := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _, _ = tasks.Close(), locks.Close() })
	tasks.AddHook(count)
	locks.AddHook(count)
	c.Redis, c.LockRedis = worker.Redis{Client: tasks}, worker.Redis{Client: locks}
}

func TestADoneItemTakesAtMostAByte(t *testing.T) {
	t.Parallel()
	var s *site
	sizes := map[int]int64{}
	h := handler(func(context.Context, string) error { return nil })
	h.Finish = func(ctx context.Context, r warehouseRun, _ items.Report) error {
		id, _ := asynq.GetTaskID(ctx)
		task := "asynq:{default}:t:" + id
		with := s.client.MemoryUsage(ctx, task, 0).Val()
		saved := s.client.HGet(ctx, task, "railtoken:items").Val()
		s.client.HDel(ctx, task, "railtoken:items")
		sizes[len(r.Orders)] = with - s.client.MemoryUsage(ctx, task, 0).Val()
		return s.client.HSet(ctx, task, "railtoken:items", saved).Err()
	}
	s = newSite(t, h)
	for _, n := range []int{40, 1000, 10_000} {
		s.await(s.enqueue("run", ordersFrom(n)), asynq.TaskStateCompleted)
		t.Logf("%d items that are done take %d bytes", n, sizes[n])
	}
	if each := float64(sizes[10_000]-sizes[1000]) / 9000; each > 1 {
		t.Errorf("an item that is done takes %.2f bytes", each)
	}
	if sizes[1000] > 1000 {
		t.Errorf("1000 items that are done take %d bytes", sizes[1000])
	}
}
