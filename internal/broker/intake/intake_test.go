package intake_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

const patience = 30 * time.Second

// noTasks answers for no task.
type noTasks struct{ fetched atomic.Int64 }

func (n *noTasks) Fetched(broker.Fetched) { n.fetched.Add(1) }

func (*noTasks) Lock(all []broker.Fetched, _ func(broker.Fetched)) []broker.Fetched { return all }

func (*noTasks) Park(broker.Fetched, func(), func() bool) bool { return false }

func (*noTasks) Left(broker.Fetched) *colocated.Release { return nil }

func (*noTasks) Release(broker.Acknowledgement) (*colocated.Release, func()) {
	return nil, nil
}

func (*noTasks) Ending(broker.Acknowledgement) *ends.Ending { return nil }

func (*noTasks) Acknowledge(context.Context, broker.Acknowledgement) (bool, func(), error) {
	return false, nil, nil
}

// enqueue adds tasks to a queue.
func enqueue(t *testing.T, client redis.UniversalClient, queue string, n int, opts ...asynq.Option) {
	t.Helper()
	tasks := asynq.NewClientFromRedisClient(client)
	for i := range n {
		all := append([]asynq.Option{asynq.Queue(queue), asynq.TaskID(fmt.Sprint(queue, i))}, opts...)
		if _, err := tasks.Enqueue(asynq.NewTask("test", nil), all...); err != nil {
			t.Fatal(err)
		}
	}
}

// serve runs an asynq server over a client until the end of the test.
func serve(t *testing.T, client redis.UniversalClient, cfg asynq.Config, opts broker.Options,
	handler func(context.Context, *asynq.Task) error,
) *asynq.Server {
	t.Helper()
	opts.Queues, opts.Strict, opts.Slots = cfg.Queues, cfg.StrictPriority, cfg.Concurrency
	opts.Tasks, opts.Interval = &noTasks{}, 20*time.Millisecond
	cfg.TaskCheckInterval, cfg.LogLevel = broker.CheckInterval, asynq.FatalLevel
	s := asynq.NewServerFromRedisClient(broker.New(client, opts), cfg)
	if err := s.Start(asynq.HandlerFunc(handler)); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(s.Shutdown)
	t.Cleanup(stop)
	return s
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

func TestEachTaskCostsOneScript(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	const tasks = 500
	enqueue(t, client, "default", tasks)
	var fetches, acks atomic.Int64
	count := func(cmd redis.Cmder) {
		if cmd.Name() != "evalsha" {
			return
		}
		switch key := fmt.Sprint(cmd.Args()[3]); key {
		case "asynq:{default}:pending":
			fetches.Add(1)
		case "asynq:{default}:active":
			acks.Add(1)
		}
	}
	client.AddHook(counting(count))
	done := make(chan struct{})
	var ran atomic.Int64
	serve(t, client, asynq.Config{Concurrency: 8}, broker.Options{}, func(context.Context, *asynq.Task) error {
		if ran.Add(1) == tasks {
			close(done)
		}
		return nil
	})
	redistest.Receive(t, done, patience)
	if f := fetches.Load(); f > tasks/10 {
		t.Errorf("%d fetches for %d tasks, want one for the first 8 and few later", f, tasks)
	}
	eventually(t, "each is done", func() bool { return client.LLen(t.Context(), "asynq:{default}:active").Val() == 0 })
	if a := acks.Load(); a > tasks+8 {
		t.Errorf("%d acknowledgements for %d tasks", a, tasks)
	}
	if n := client.Get(t.Context(), "asynq:{default}:processed").Val(); n != fmt.Sprint(tasks) {
		t.Errorf("asynq has counted %s", n)
	}
}

// counting is a hook that sees each command.
type counting func(cmd redis.Cmder)

func (c counting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c(cmd)
		return next(ctx, cmd)
	}
}

func (c counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c(cmd)
		}
		return next(ctx, cmds)
	}
}

func TestFullQueuesShareByTheirWeights(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	queues := map[string]int{"critical": 6, "default": 3, "low": 1}
	const tasks = 3000
	for queue := range queues {
		enqueue(t, client, queue, tasks)
	}
	var mu sync.Mutex
	ran, total, done := map[string]int{}, 0, make(chan struct{})
	serve(t, client, asynq.Config{Concurrency: 16, Queues: queues}, broker.Options{}, func(ctx context.Context, _ *asynq.Task) error {
		queue, _ := asynq.GetQueueName(ctx)
		mu.Lock()
		defer mu.Unlock()
		if total < tasks {
			ran[queue]++
			total++
			if total == tasks {
				close(done)
			}
		}
		return nil
	})
	redistest.Receive(t, done, patience)
	mu.Lock()
	defer mu.Unlock()
	for queue, weight := range queues {
		if share, want := float64(ran[queue])/tasks, float64(weight)/10; share < want-0.05 || share > want+0.05 {
			t.Errorf("%s has a share of %.3f, want %.1f", queue, share, want)
		}
	}
}

func TestStrictPriorityEmptiesTheFirstQueueFirst(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	enqueue(t, client, "low", 200)
	enqueue(t, client, "high", 200)
	var mu sync.Mutex
	var order []string
	serve(t, client, asynq.Config{Concurrency: 4, Queues: map[string]int{"high": 2, "low": 1}, StrictPriority: true},
		broker.Options{}, func(ctx context.Context, _ *asynq.Task) error {
			queue, _ := asynq.GetQueueName(ctx)
			mu.Lock()
			defer mu.Unlock()
			order = append(order, queue)
			return nil
		})
	eventually(t, "all have run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(order) == 400
	})
	if early := slices.Index(order, "low"); early < 190 { // tasks that start together begin in any order
		t.Errorf("a task of the low queue was number %d", early)
	}
}

func TestAPausedQueueGivesNoTask(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	enqueue(t, client, "default", 50)
	enqueue(t, client, "paused", 50)
	if err := asynq.NewInspectorFromRedisClient(client).PauseQueue("paused"); err != nil {
		t.Fatal(err)
	}
	var paused, others atomic.Int64
	serve(t, client, asynq.Config{Concurrency: 4, Queues: map[string]int{"paused": 9, "default": 1}}, broker.Options{},
		func(ctx context.Context, _ *asynq.Task) error {
			if queue, _ := asynq.GetQueueName(ctx); queue == "paused" {
				paused.Add(1)
			} else {
				others.Add(1)
			}
			return nil
		})
	eventually(t, "the others have run", func() bool { return others.Load() == 50 })
	if n := paused.Load(); n != 0 {
		t.Errorf("%d tasks of a paused queue ran", n)
	}
}

// The server is stopped without notice, as asynq's own Shutdown does: acknowledgements go on to bring tasks for slots
// that nobody fills.
func TestAShutdownLeavesNoTaskActive(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	const tasks = 400
	enqueue(t, client, "default", tasks, asynq.MaxRetry(0))
	var ran atomic.Int64
	begun := make(chan struct{}, tasks)
	s := serve(t, client, asynq.Config{Concurrency: 16}, broker.Options{}, func(context.Context, *asynq.Task) error {
		begun <- struct{}{}
		<-time.After(5 * time.Millisecond)
		ran.Add(1)
		return nil
	})
	for range 50 {
		redistest.Receive(t, begun, patience)
	}
	s.Shutdown()
	ctx := t.Context()
	eventually(t, "nothing is active", func() bool {
		return client.LLen(ctx, "asynq:{default}:active").Val()+client.ZCard(ctx, "asynq:{default}:lease").Val() == 0
	})
	if left := client.LLen(ctx, "asynq:{default}:pending").Val(); left+ran.Load() != tasks {
		t.Errorf("%d ran and %d are pending, want %d together", ran.Load(), left, tasks)
	}
	if n := client.ZCard(ctx, "asynq:{default}:archived").Val(); n != 0 {
		t.Errorf("%d are archived", n)
	}
}

// A task that asynq does not ask for goes back to where it came from, and keeps that it was woken.
func TestATaskThatAsynqDoesNotTakeGoesBack(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	enqueue(t, client, "default", 3)
	ctx := t.Context()
	client.HSet(ctx, "asynq:{default}:t:default0", "railtoken:woken", "1")
	in := intake.New(client, intake.Options{Slots: 3})
	if _, err := in.Fetch(ctx, "default"); err != nil {
		t.Fatal(err)
	}
	if n := client.LLen(ctx, "asynq:{default}:active").Val(); n != 3 {
		t.Fatalf("%d were taken, want 3", n)
	}
	eventually(t, "all are pending", func() bool { return client.LLen(ctx, "asynq:{default}:pending").Val() == 3 })
	if ids := client.LRange(ctx, "asynq:{default}:pending", 0, -1).Val(); !slices.Equal(ids, []string{"default2", "default1", "default0"}) {
		t.Errorf("pending are %v", ids)
	}
	if woken := client.HGet(ctx, "asynq:{default}:t:default0", "railtoken:woken").Val(); woken != "1" {
		t.Error("it has forgotten that it was woken")
	}
	if n := client.ZCard(ctx, "asynq:{default}:lease").Val(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	if _, err := in.Fetch(ctx, "default"); err != nil {
		t.Fatal(err)
	}
	if task, ok := in.Take(); !ok || task.ID != "default0" || !task.Woken {
		t.Errorf("then comes %+v", task)
	}
	in.Drain(ctx)
	eventually(t, "the others are back", func() bool { return client.LLen(ctx, "asynq:{default}:pending").Val() == 2 })
}

// Redis refuses what it cannot do: that is an answer, and asynq hears of it.
func TestARefusalIsAnAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	enqueue(t, server.Client(t), "default", 1)
	client := server.Client(t, server.User(t, "u", "~*", "+@all", "-rpoplpush"))
	in := intake.New(client, intake.Options{Slots: 1})
	_, err := in.Fetch(t.Context(), "default")
	if _, ok := errors.AsType[redis.Error](err); !ok {
		t.Errorf("%v, want what Redis has answered", err)
	}
}

// A reply with the messages of all free slots might take longer than the client waits, and its recall as long again.
func TestLongMessagesComeInSeveralCalls(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	ctx := t.Context()
	tasks := asynq.NewClientFromRedisClient(client)
	for range 8 {
		if _, err := tasks.Enqueue(asynq.NewTask("test", make([]byte, 400_000))); err != nil {
			t.Fatal(err)
		}
	}
	in := intake.New(client, intake.Options{Slots: 8})
	if _, err := in.Fetch(ctx, "default"); err != nil {
		t.Fatal(err)
	}
	if n := client.LLen(ctx, "asynq:{default}:active").Val(); n != 3 {
		t.Errorf("%d tasks with 400 kB each come in one call, want 3", n)
	}
	in.Drain(ctx)
}
