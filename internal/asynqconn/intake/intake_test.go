package intake_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqconn"
	"github.com/railtoken/railtoken/internal/asynqconn/intake"
	"github.com/railtoken/railtoken/internal/redistest"
)

const patience = 30 * time.Second

// noTasks answers for no task.
type noTasks struct{ fetched atomic.Int64 }

func (n *noTasks) Fetched(asynqconn.Fetched) { n.fetched.Add(1) }

func (*noTasks) Acknowledge(context.Context, asynqconn.Acknowledgement) (bool, error) {
	return false, nil
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
func serve(t *testing.T, client redis.UniversalClient, cfg asynq.Config, opts asynqconn.Options,
	handler func(context.Context, *asynq.Task) error,
) *asynq.Server {
	t.Helper()
	opts.Queues, opts.Strict, opts.Slots = cfg.Queues, cfg.StrictPriority, cfg.Concurrency
	opts.Tasks, opts.Interval = &noTasks{}, 20*time.Millisecond
	cfg.TaskCheckInterval, cfg.LogLevel = asynqconn.CheckInterval, asynq.FatalLevel
	s := asynq.NewServerFromRedisClient(asynqconn.New(client, opts), cfg)
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
	serve(t, client, asynq.Config{Concurrency: 8}, asynqconn.Options{}, func(context.Context, *asynq.Task) error {
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
	serve(t, client, asynq.Config{Concurrency: 16, Queues: queues}, asynqconn.Options{}, func(ctx context.Context, _ *asynq.Task) error {
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
		asynqconn.Options{}, func(ctx context.Context, _ *asynq.Task) error {
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
	serve(t, client, asynq.Config{Concurrency: 4, Queues: map[string]int{"paused": 9, "default": 1}}, asynqconn.Options{},
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
	s := serve(t, client, asynq.Config{Concurrency: 16}, asynqconn.Options{}, func(context.Context, *asynq.Task) error {
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
	if err := in.Fetch(ctx, "default"); err != nil {
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
	if err := in.Fetch(ctx, "default"); err != nil {
		t.Fatal(err)
	}
	if task, ok := in.Take(); !ok || task.ID != "default0" || !task.Woken {
		t.Errorf("then comes %+v", task)
	}
	in.Drain(ctx)
	eventually(t, "the others are back", func() bool { return client.LLen(ctx, "asynq:{default}:pending").Val() == 2 })
}

// One reply in eight is cut, each of which may be that of several calls. Some tasks fail at first, and some are kept
// after they have ended, so that their hashes outlive their runs.
func TestLostRepliesStrandAndRepeatNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	const tasks = 2000
	enqueue(t, admin, "default", tasks/2, asynq.MaxRetry(1))
	enqueue(t, admin, "kept", tasks/2, asynq.MaxRetry(0), asynq.Retention(time.Hour))
	proxy := redistest.NewProxy(t, server.Addr())
	var replies, cuts atomic.Int64
	proxy.Cut(func(request, _ []byte) bool {
		if bytes.Contains(request, []byte("}:paused")) && replies.Add(1)%8 == 0 {
			cuts.Add(1)
			return true
		}
		return false
	})
	var mu sync.Mutex
	runs, ended, done := map[string]int{}, 0, make(chan struct{})
	s := serve(t, server.Client(t, func(o *redis.Options) { o.Addr, o.PoolSize = proxy.Addr(), 32 }),
		asynq.Config{
			Concurrency: 16, Queues: map[string]int{"default": 1, "kept": 1}, DelayedTaskCheckInterval: 100 * time.Millisecond,
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
		},
		asynqconn.Options{}, func(ctx context.Context, _ *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			mu.Lock()
			defer mu.Unlock()
			runs[id]++
			if runs[id] == 1 && failsFirst(id) {
				return errors.New("the first run fails")
			}
			ended++
			if ended == tasks {
				close(done)
			}
			return nil
		})
	redistest.Receive(t, done, 2*patience)
	ctx := t.Context()
	eventually(t, "each is done", func() bool {
		return admin.LLen(ctx, "asynq:{default}:active").Val()+admin.LLen(ctx, "asynq:{kept}:active").Val() == 0
	})
	s.Shutdown()
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d replies were cut", cuts.Load())
	if cuts.Load() < 20 {
		t.Errorf("only %d replies were cut", cuts.Load())
	}
	for id, n := range runs {
		if want := map[bool]int{true: 2, false: 1}[failsFirst(id)]; n != want {
			t.Errorf("%s ran %d times, want %d", id, n, want)
		}
	}
	if n := admin.Keys(ctx, "asynq:{default}:t:*").Val(); len(n) != 0 {
		t.Errorf("%d tasks are left: %v", len(n), n[:min(len(n), 3)])
	}
	if n := admin.ZCard(ctx, "asynq:{kept}:completed").Val(); n != tasks/2 {
		t.Errorf("%d tasks are kept, want %d", n, tasks/2)
	}
	if n := admin.ZCard(ctx, "asynq:{default}:archived").Val() + admin.ZCard(ctx, "asynq:{kept}:archived").Val(); n != 0 {
		t.Errorf("%d tasks are archived", n)
	}
}

// failsFirst says which tasks fail in their first run.
func failsFirst(id string) bool {
	return strings.HasPrefix(id, "default") && strings.HasSuffix(id, "7")
}

// An acknowledgement that was repeated arrives late: it must neither end another run of its task nor take a task that
// no server hears of.
func TestAnAcknowledgementThatComesLateDoesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	ctx := t.Context()
	enqueue(t, admin, "default", 3)
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.Client(t, func(o *redis.Options) { o.Addr, o.ReadTimeout, o.PoolSize = proxy.Addr(), 300*time.Millisecond, 8 })
	ran := make(chan string, 8)
	hold := make(chan struct{})
	serve(t, client, asynq.Config{Concurrency: 1}, asynqconn.Options{}, func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ran <- id
		if id == "default1" { // scripts are known by then
			<-hold
		}
		return nil
	})
	for range 2 {
		redistest.Receive(t, ran, patience)
	}
	held := proxy.Hold(func(request []byte) bool { return bytes.Contains(request, []byte("}:processed")) })
	close(hold)
	redistest.Receive(t, held.Caught, patience)
	if id := redistest.Receive(t, ran, patience); id != "default2" { // the repeated acknowledgement has brought it
		t.Fatalf("%s ran", id)
	}
	eventually(t, "all are done", func() bool { return admin.LLen(ctx, "asynq:{default}:active").Val() == 0 })
	enqueue(t, admin, "other", 1)
	held.Deliver()
	if n := admin.LLen(ctx, "asynq:{other}:pending").Val(); n != 1 {
		t.Errorf("%d tasks are pending in the other queue, want 1", n)
	}
	if n := admin.Get(ctx, "asynq:{default}:processed").Val(); n != "3" {
		t.Errorf("asynq has counted %s, want 3", n)
	}
}

// The acknowledgement of a failed run comes late, when the task is in its next run.
func TestALateAcknowledgementEndsNoOtherRun(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	ctx := t.Context()
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.Client(t, func(o *redis.Options) { o.Addr, o.ReadTimeout, o.PoolSize = proxy.Addr(), 300*time.Millisecond, 8 })
	runs, hold := make(chan int, 8), make(chan struct{})
	serve(t, client, asynq.Config{
		Concurrency: 1, DelayedTaskCheckInterval: 50 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
	}, asynqconn.Options{}, func(ctx context.Context, _ *asynq.Task) error {
		run, _ := asynq.GetRetryCount(ctx)
		runs <- run
		if run == 0 {
			return errors.New("the first run fails")
		}
		if id, _ := asynq.GetTaskID(ctx); id == "default0" {
			<-hold
		}
		return nil
	})
	enqueue(t, admin, "default", 1, asynq.TaskID("warm-up"), asynq.MaxRetry(1)) // the scripts are known then
	redistest.Receive(t, runs, patience)
	redistest.Receive(t, runs, patience)
	eventually(t, "it is done", func() bool { return admin.LLen(ctx, "asynq:{default}:active").Val() == 0 })
	held := proxy.Hold(func(request []byte) bool { return bytes.Contains(request, []byte("}:failed")) })
	enqueue(t, admin, "default", 1, asynq.MaxRetry(1))
	redistest.Receive(t, runs, patience)
	redistest.Receive(t, held.Caught, patience)
	if run := redistest.Receive(t, runs, patience); run != 1 {
		t.Fatalf("run %d began", run)
	}
	held.Deliver()
	if ids := admin.LRange(ctx, "asynq:{default}:active", 0, -1).Val(); !slices.Equal(ids, []string{"default0"}) {
		t.Errorf("active are %v: the late acknowledgement has ended the next run", ids)
	}
	close(hold)
	eventually(t, "it is done", func() bool { return len(admin.Keys(ctx, "asynq:{default}:t:*").Val()) == 0 })
}

// The reply to an acknowledgement is lost, and then Redis refuses for a while, as a master does that becomes a replica.
func TestAnAcknowledgementOutlastsARefusalForTheMoment(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	enqueue(t, admin, "default", 2)
	client := server.Client(t)
	var lost, refused atomic.Int64
	client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if len(cmd.Args()) > 3 && fmt.Sprint(cmd.Args()[3]) == "asynq:{default}:active" {
			switch {
			case lost.Add(1) == 1:
				return redistest.Fail(cmd, errors.New("connection reset by peer"))
			case refused.Add(1) <= 3:
				return redistest.Fail(cmd, readOnlyError{})
			}
		}
		return next(ctx, cmd)
	}))
	serve(t, client, asynq.Config{Concurrency: 1}, asynqconn.Options{}, func(context.Context, *asynq.Task) error { return nil })
	eventually(t, "both are done", func() bool { return admin.Get(t.Context(), "asynq:{default}:processed").Val() == "2" })
	if n := len(admin.Keys(t.Context(), "asynq:{default}:t:*").Val()); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
}

// readOnlyError is the refusal of a replica.
type readOnlyError struct{}

func (readOnlyError) Error() string { return "READONLY You can't write against a read only replica." }
func (readOnlyError) RedisError()   {}

// Redis refuses what it cannot do: that is an answer, and asynq hears of it.
func TestARefusalIsAnAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	enqueue(t, server.Client(t), "default", 1)
	client := server.Client(t, server.User(t, "u", "~*", "+@all", "-rpoplpush"))
	in := intake.New(client, intake.Options{Slots: 1})
	err := in.Fetch(t.Context(), "default")
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
	if err := in.Fetch(ctx, "default"); err != nil {
		t.Fatal(err)
	}
	if n := client.LLen(ctx, "asynq:{default}:active").Val(); n != 3 {
		t.Errorf("%d tasks with 400 kB each come in one call, want 3", n)
	}
	in.Drain(ctx)
}
