package broker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

const manyLanes = 64

func newLanes(tb testing.TB, n int) lanes.Lanes {
	tb.Helper()
	l, err := lanes.New(n)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// never answers no acknowledgement.
func never(Acknowledgement) (bool, error) { return false, nil }

// someQueues are those of a server with lanes.
var someQueues = map[string]int{"orders": 6, "audit": 3, "mail": 1}

// inLanesOn runs a server with lanes until the end of the test.
func inLanesOn(t *testing.T, client redis.UniversalClient, opts Options, cfg asynq.Config, run asynq.HandlerFunc) (*Conn, *asynq.Server) {
	t.Helper()
	opts.Queues, opts.Strict, opts.Slots, opts.Tasks = cfg.Queues, cfg.StrictPriority, cfg.Concurrency, &witness{answers: never}
	opts.Interval = cmp.Or(opts.Interval, 50*time.Millisecond)
	cfg.TaskCheckInterval, cfg.LogLevel, cfg.DelayedTaskCheckInterval = CheckInterval, asynq.FatalLevel, time.Second
	conn := New(client, opts)
	s := asynq.NewServerFromRedisClient(conn, cfg)
	if err := s.Start(run); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sync.OnceFunc(s.Shutdown))
	return conn, s
}

// fill adds n tasks to each of some queues, with the numbers of those before them as payloads.
func fill(t *testing.T, client redis.UniversalClient, n int, queues []string, opts ...asynq.Option) {
	t.Helper()
	tasks := asynq.NewClientFromRedisClient(client)
	for i := range n {
		for _, queue := range queues {
			if _, err := tasks.Enqueue(asynq.NewTask("test", fmt.Append(nil, i)), append(opts, asynq.Queue(queue))...); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); <-time.After(5 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// carriedOut returns how many commands masters have carried out, those that scripts have called included.
func carriedOut(t *testing.T, nodes ...*redistest.Server) (n int) {
	t.Helper()
	for _, node := range nodes {
		n += redistest.Commands(t, node.Client(t))
	}
	return n
}

// patientCluster returns a client whose calls end with their contexts.
func patientCluster(t *testing.T, c *redistest.Cluster) *redis.ClusterClient {
	t.Helper()
	return c.Client(t, func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true })
}

func TestEachTaskCostsInLanesWhatItCostsOnOneRedis(t *testing.T) {
	t.Parallel()
	for _, served := range []map[string]int{{"orders": 1}, someQueues} {
		t.Run(fmt.Sprint(len(served)), func(t *testing.T) {
			t.Parallel()
			costInLanes(t, served)
		})
	}
}

func costInLanes(t *testing.T, served map[string]int) {
	t.Helper()
	l := newLanes(t, 16)
	queues := slices.Sorted(maps.Keys(served))
	const tasks = 9600
	cost := func(client redis.UniversalClient, opts Options, queues []string, nodes ...*redistest.Server) float64 {
		fill(t, client, tasks/len(queues), queues)
		var ran atomic.Int64
		done := make(chan struct{})
		from := carriedOut(t, nodes...)
		_, s := inLanesOn(t, client, opts, asynq.Config{Queues: served, Concurrency: 32}, func(context.Context, *asynq.Task) error {
			if ran.Add(1) == tasks/int64(len(queues))*int64(len(queues)) {
				close(done)
			}
			return nil
		})
		redistest.Receive(t, done, patience)
		s.Shutdown()
		return float64(carriedOut(t, nodes...)-from) / tasks
	}
	one := redistest.Start(t)
	single := cost(one.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true }), Options{}, queues, one)
	c := redistest.StartCluster(t, 3)
	inLanes := cost(patientCluster(t, c), Options{Lanes: l}, inAllLanes(l, queues...), c.Nodes()...)
	t.Logf("a task costs %.1f commands on one Redis, and %.1f in lanes", single, inLanes)
	if inLanes > 1.1*single {
		t.Errorf("a task costs %.1f commands in lanes, and %.1f on one Redis", inLanes, single)
	}
}

// inAllLanes returns some queues in all lanes.
func inAllLanes(l lanes.Lanes, queues ...string) (all []string) {
	for _, queue := range queues {
		all = append(all, l.Queues(queue)[:l.Count()]...)
	}
	return all
}

// An idle server hears of a task at once, in a lane and in a queue itself, and costs the masters little, calls inside scripts included.
func TestAnIdleServerWithLanesSendsFewCommands(t *testing.T) {
	t.Parallel()
	l := newLanes(t, manyLanes)
	c := redistest.StartCluster(t, 3)
	client := patientCluster(t, c)
	began := make(chan time.Time, 1)
	inLanesOn(t, client, Options{Lanes: l}, asynq.Config{Queues: someQueues, Concurrency: 10}, func(context.Context, *asynq.Task) error {
		began <- time.Now()
		return nil
	})
	var took []time.Duration
	for i := range 60 {
		<-time.After(time.Duration(i%7) * 11 * time.Millisecond)
		at, queue := time.Now(), "orders"
		if i%3 > 0 {
			queue = l.Queue("audit", i)
		}
		fill(t, client, 1, []string{queue})
		if queue != "orders" {
			client.Publish(t.Context(), lanes.ReadyChannel(i), queue)
		}
		took = append(took, redistest.Receive(t, began, patience).Sub(at))
	}
	slices.Sort(took)
	if p90 := took[len(took)*9/10]; p90 > 100*time.Millisecond {
		t.Errorf("of the tasks that an idle server hears of, a tenth starts later than after %v", p90)
	}
	from := carriedOut(t, c.Nodes()...)
	<-time.After(10 * time.Second)
	rate := float64(carriedOut(t, c.Nodes()...)-from) / 10
	t.Logf("%.1f commands a second; a task starts after %v (p50), %v (p90)", rate, took[len(took)/2], took[len(took)*9/10])
	if rate > 60 {
		t.Errorf("an idle server sends %.1f commands a second, want 60 at most", rate)
	}
}

// One call brings about a megabyte of messages. The others come at once, not when the lane is looked at again.
func TestLargeTasksOfALaneFillAllSlots(t *testing.T) {
	t.Parallel()
	l := newLanes(t, 16)
	client := patientCluster(t, redistest.StartCluster(t, 3))
	const all = 16
	tasks := asynq.NewClientFromRedisClient(client)
	for range all {
		if _, err := tasks.Enqueue(asynq.NewTask("test", make([]byte, 250_000)), asynq.Queue(l.Queue("orders", 5))); err != nil {
			t.Fatal(err)
		}
	}
	began, end := make(chan time.Time, all), make(chan struct{})
	inLanesOn(t, client, Options{Lanes: l}, asynq.Config{Queues: someQueues, Concurrency: all + 4}, func(context.Context, *asynq.Task) error {
		began <- time.Now()
		<-end
		return nil
	})
	t.Cleanup(func() { close(end) })
	first := redistest.Receive(t, began, patience)
	var took time.Duration
	for range all - 1 {
		took = redistest.Receive(t, began, patience).Sub(first)
	}
	if took > laneLooks*laneLookEach {
		t.Errorf("the last of %d tasks begins %v after the first", all, took)
	}
}

// asynq puts a task back whose handler has not ended in time: an idle server is to hear of it.
func TestATaskThatIsPutBackIsAnnounced(t *testing.T) {
	t.Parallel()
	l := newLanes(t, 16)
	c := redistest.StartCluster(t, 3)
	client := patientCluster(t, c)
	queue := l.Queue("orders", 5)
	began, end := make(chan struct{}), make(chan struct{})
	_, s := inLanesOn(t, client, Options{Lanes: l}, asynq.Config{Queues: someQueues, Concurrency: 1, ShutdownTimeout: time.Millisecond}, func(context.Context, *asynq.Task) error {
		close(began)
		<-end
		return nil
	})
	t.Cleanup(func() { close(end) })
	fill(t, client, 1, []string{queue})
	redistest.Receive(t, began, patience)
	notices := client.Subscribe(t.Context(), lanes.ReadyChannel(5))
	t.Cleanup(func() { _ = notices.Close() })
	if _, err := notices.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Shutdown()
	if n := client.LLen(t.Context(), asynqwire.Pending(queue)).Val(); n != 1 {
		t.Fatalf("%d tasks are pending", n)
	}
	if m := redistest.Receive(t, notices.Channel(), patience); m.Payload != queue {
		t.Errorf("a notice of %s, want one of %s", m.Payload, queue)
	}
}

// asynq sees the queues alone: its forwarder, janitor and recoverer work in all lanes.
func TestAsynqLooksAfterAllLanes(t *testing.T) {
	t.Parallel()
	l := newLanes(t, 16)
	c := redistest.StartCluster(t, 3)
	client := patientCluster(t, c)
	ctx := t.Context()
	queues := append(inAllLanes(l, "orders"), "orders")
	fill(t, client, 1, queues, asynq.ProcessIn(2*time.Second))
	for _, queue := range queues { // of a server that has died; and one whose retention has ended
		fill(t, client, 1, []string{queue}, asynq.TaskID("dead"), asynq.MaxRetry(0))
		client.LMove(ctx, "asynq:{"+queue+"}:pending", "asynq:{"+queue+"}:active", "RIGHT", "LEFT")
		client.ZAdd(ctx, "asynq:{"+queue+"}:lease", redis.Z{Score: 1, Member: "dead"})
		client.ZAdd(ctx, "asynq:{"+queue+"}:completed", redis.Z{Score: 1, Member: "over"})
		client.HSet(ctx, "asynq:{"+queue+"}:t:over", "state", "completed")
	}
	var mu sync.Mutex
	ran := map[string]int{}
	inLanesOn(t, client, Options{Lanes: l}, asynq.Config{
		Queues: someQueues, Concurrency: 10, JanitorInterval: time.Second,
	}, func(ctx context.Context, _ *asynq.Task) error {
		queue, _ := asynq.GetQueueName(ctx)
		mu.Lock()
		defer mu.Unlock()
		ran[queue]++
		return nil
	})
	for _, queue := range queues {
		eventually(t, queue, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return ran[queue] == 1 && client.Exists(ctx, "asynq:{"+queue+"}:t:over").Val() == 0 &&
				client.ZScore(ctx, "asynq:{"+queue+"}:archived", "dead").Err() == nil
		})
	}
}

// The master of a third of the lanes does not answer. The others go on with all slots, and their looks count.
func TestAMasterThatIsAwayHoldsUpNoOtherLane(t *testing.T) {
	t.Parallel()
	l := newLanes(t, manyLanes)
	c := redistest.StartCluster(t, 3)
	client := patientCluster(t, c)
	queues := inAllLanes(l, "orders")
	const each = 20
	fill(t, client, each, queues)
	var ran [manyLanes]atomic.Int64
	inLanesOn(t, client, Options{Lanes: l}, asynq.Config{Queues: someQueues, Concurrency: 8}, func(ctx context.Context, _ *asynq.Task) error {
		queue, _ := asynq.GetQueueName(ctx)
		_, lane, _ := lanes.Split(queue)
		ran[lane].Add(1)
		<-time.After(2 * time.Millisecond)
		return nil
	})
	eventually(t, "tasks run", func() bool { return ran[0].Load() > 0 })
	c.Nodes()[0].Pause()
	t.Cleanup(sync.OnceFunc(c.Nodes()[0].Resume))
	from := manyLanes / 3
	if l.Slot(from)*3 < 16384 {
		from++
	}
	began := time.Now()
	for lane := from; lane < manyLanes; lane++ {
		eventually(t, queues[lane], func() bool { return ran[lane].Load() >= each })
	}
	t.Logf("the lanes of the other masters are done after %v", time.Since(began))
	c.Nodes()[0].Resume()
	for lane := range manyLanes {
		eventually(t, queues[lane], func() bool { return ran[lane].Load() >= each })
	}
	for lane := range ran {
		if n := ran[lane].Load(); n != each {
			t.Errorf("lane %d has run %d tasks, want %d", lane, n, each)
		}
	}
}

// Weights and strict priorities hold over all lanes, if these have tasks for several turns.
func TestPrioritiesHoldOverLanes(t *testing.T) {
	t.Parallel()
	l := newLanes(t, 16)
	c := redistest.StartCluster(t, 3)
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprint("strict=", strict), func(t *testing.T) {
			client := patientCluster(t, c)
			const each = 150
			queues := inAllLanes(l, "high", "low")
			fill(t, client, each, queues)
			var mu sync.Mutex
			var order []string
			_, s := inLanesOn(t, client, Options{Lanes: l}, asynq.Config{
				Queues: map[string]int{"high": 3, "low": 1}, StrictPriority: strict, Concurrency: 4,
			}, func(ctx context.Context, _ *asynq.Task) error {
				queue, _ := asynq.GetQueueName(ctx)
				mu.Lock()
				order = append(order, lanes.Base(queue))
				mu.Unlock()
				<-time.After(time.Millisecond)
				return nil
			})
			eventually(t, "all run", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(order) == each*len(queues)
			})
			s.Shutdown()
			high := 0
			for _, queue := range order[:each*len(queues)/2] {
				if queue == "high" {
					high++
				}
			}
			half := each * len(queues) / 2
			if strict && high < half-8 || high < half*6/10 {
				t.Errorf("%d of the first %d are high", high, half)
			}
		})
	}
}
