package attach_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/childtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// doomedTasks is the Redis of the tasks of a worker that is killed or stopped: it makes this test program that worker.
const doomedTasks = "ATTACH_TEST_DOOMED"

// soon is the shortest recovery that there is, and patient that of tests with real servers: the usual one in make thorough.
var (
	soon    = attach.Recovery{After: 10 * time.Second}
	patient = attach.Recovery{After: recovered}
)

// withoutKey names tasks that need no exclusion.
const withoutKey = "free"

// order is the payload of tasks of type found.
type order struct{ Key string }

// handlers returns the same handler for tasks with and without keys.
func handlers(a *attach.Attached, h asynq.HandlerFunc) asynq.Handler {
	mux := asynq.NewServeMux()
	mux.Handle("test", a.Lock(byPayload)(h))
	mux.Handle("found", a.Lock(middleware.PayloadKey(func(o order) string { return o.Key }))(h))
	mux.Handle(withoutKey, a.Unlocked(h))
	return mux
}

// doomed is a worker whose handlers run until their contexts end. Each tells when it begins, why its context has ended, and
// whether a fenced write was refused then.
//
// Several addresses are those of a Redis Cluster.
func doomed(addrs string) error {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(addrs, ",")})
	a, err := attach.New(client, asynq.Config{Concurrency: 100, LogLevel: asynq.FatalLevel}, attach.Options{Recovery: patient})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(text)
	}
	s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
	err = s.Start(handlers(a, func(ctx context.Context, task *asynq.Task) error {
		var token int64
		if lease, ok := locking.FromContext(ctx); ok {
			token, _ = lease.Fence(ctx)
			_, _ = claim.Run(ctx, client, []string{"resource"}, token).Result()
		}
		id, _ := asynq.GetTaskID(ctx)
		say("began " + id)
		if strings.HasPrefix(id, "brief") {
			return client.Incr(ctx, "ran").Err()
		}
		<-ctx.Done()
		reason := context.Cause(ctx).Error()
		if errors.Is(context.Cause(ctx), attach.ErrSilent) && errors.Is(context.Cause(ctx), locking.ErrLost) {
			reason = "silent"
		}
		landed, err := claim.Run(context.Background(), client, []string{"resource"}, token).Int()
		say(fmt.Sprintf("ended %d %v %s", landed, err == nil, reason))
		return nil
	}))
	if err != nil {
		return err
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until it is told to stop, or the test ends
	s.Shutdown()
	err = a.Close()
	say("stopped")
	return err
}

// claim raises the token of a resource, unless a larger one was claimed: then it returns 0.
var claim = redis.NewScript(`
if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or '0') then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1`)

// begins starts a doomed worker, and returns it once it runs all of n tasks.
func (r *rig) begins(server *redistest.Server, n int) *childtest.Child {
	r.Helper()
	return beginsAt(r.T, server.Addr(), n)
}

func beginsAt(t *testing.T, addrs string, n int) *childtest.Child {
	t.Helper()
	c := childtest.Start(t, doomedTasks+"="+addrs)
	for range n {
		if line := c.Says(t); !strings.HasPrefix(line, "began ") {
			t.Fatalf("the worker says %q", line)
		}
	}
	return c
}

// recoveries counts the events of tasks that were taken back. It is safe for concurrent use.
type recoveries struct {
	mu    sync.Mutex
	tasks map[delayqueue.Task]int
}

func (all *recoveries) observe(_ context.Context, e middleware.Event) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.tasks == nil {
		all.tasks = map[delayqueue.Task]int{}
	}
	if e.Kind == attach.Recovered {
		all.tasks[e.Task]++
	}
}

func (all *recoveries) counted() map[delayqueue.Task]int {
	all.mu.Lock()
	defer all.mu.Unlock()
	return maps.Clone(all.tasks)
}

func (all *recoveries) sum() (sum int) {
	for _, n := range all.counted() {
		sum += n
	}
	return sum
}

// Half of them have a key, which is recorded with some and found in others, and half have no retry left.
func TestAKilledWorkersTasksRunAgainSoonWithoutARetry(t *testing.T) {
	t.Parallel()
	const tasks = 100
	server := redistest.Start(t)
	r := rigOn(t, server)
	producer, err := attach.NewProducer(r.client, attach.ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range tasks {
		opts := []asynq.Option{asynq.MaxRetry(i % 2 * 3), asynq.TaskID(strconv.Itoa(i))}
		task := asynq.NewTask(withoutKey, nil)
		switch i / 2 % 4 {
		case 0:
			task = asynq.NewTask("test", []byte(strconv.Itoa(i)))
			opts = append(opts, attach.Keys(strconv.Itoa(i)))
		case 1:
			task = asynq.NewTask("found", fmt.Appendf(nil, `{"key":"%d"}`, i))
		}
		if _, err := producer.EnqueueContext(t.Context(), task, opts...); err != nil {
			t.Fatal(err)
		}
	}
	dies := r.begins(server, tasks)
	var seen recoveries
	a := r.attach(asynq.Config{Concurrency: tasks}, attach.Options{Recovery: patient, Observer: seen.observe})
	type run struct {
		id      string
		retried int
		after   time.Duration
	}
	ran := make(chan run, 2*tasks)
	var killed time.Time
	r.serve(a.Client(), a.Config(), handlers(a, func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		retried, _ := asynq.GetRetryCount(ctx)
		ran <- run{id, retried, time.Since(killed)}
		return nil
	}))
	r.reports(2)
	if _, err := r.tasks.Enqueue(asynq.NewTask("found", []byte(`{"key":"first"}`))); err != nil { // it shows where the keys are
		t.Fatal(err)
	}
	receive(t, ran)
	killed = time.Now()
	dies.Signal(t, syscall.SIGKILL)
	again, latest := map[string]int{}, time.Duration(0)
	for range tasks {
		one := receive(t, ran)
		again[one.id]++
		latest = max(latest, one.after)
		if one.retried != 0 {
			t.Errorf("task %s runs again with %d retries", one.id, one.retried)
		}
	}
	t.Logf("all tasks run again after %v", latest)
	// An idle machine needs a tenth of a second after that. asynq would bring none of them back for 55 s.
	if len(again) != tasks || latest > patient.After+10*time.Second {
		t.Errorf("%d tasks run again, the last after %v", len(again), latest)
	}
	for began := time.Now(); seen.sum() < tasks && time.Since(began) < limit; {
		<-time.After(2 * time.Millisecond)
	}
	for task, n := range seen.counted() {
		if n != 1 {
			t.Errorf("%v was taken back %d times", task, n)
		}
	}
	if n := seen.sum(); n != tasks {
		t.Errorf("%d tasks were taken back", n)
	}
}

// reports waits until so many workers report.
func (r *rig) reports(n int64) {
	r.Helper()
	for began := time.Now(); r.client.ZCard(r.Context(), "railtoken:workers").Val() != n; <-time.After(2 * time.Millisecond) {
		if time.Since(began) > limit {
			r.Fatalf("not %d workers report", n)
		}
	}
}

// Their locks end with their TTLs there.
func TestAKilledWorkersTasksRunAgainSoonOnACluster(t *testing.T) {
	t.Parallel()
	const tasks = 20
	cluster := redistest.StartCluster(t, 3)
	client := cluster.Client(t)
	enqueuer := asynq.NewClientFromRedisClient(client)
	for i := range tasks {
		task := asynq.NewTask(withoutKey, nil)
		if i%2 == 0 {
			task = asynq.NewTask("test", []byte(strconv.Itoa(i)))
		}
		if _, err := enqueuer.Enqueue(task, asynq.MaxRetry(0), asynq.TaskID(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	dies := beginsAt(t, strings.Join(cluster.Addrs(), ","), tasks)
	a, err := attach.New(client, asynq.Config{Concurrency: tasks, LogLevel: asynq.FatalLevel}, attach.Options{Recovery: patient})
	ok(t, err)
	defer func() { ok(t, a.Close()) }()
	ran := make(chan string, 2*tasks)
	s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
	ok(t, s.Start(handlers(a, func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ran <- id
		return nil
	})))
	defer s.Shutdown()
	for began := time.Now(); client.ZCard(t.Context(), "railtoken:workers").Val() != 2; <-time.After(2 * time.Millisecond) {
		if time.Since(began) > limit {
			t.Fatal("two workers do not report")
		}
	}
	dies.Signal(t, syscall.SIGKILL)
	killed, again, free := time.Now(), map[string]bool{}, 0
	for range tasks {
		id := receive(t, ran)
		if n, _ := strconv.Atoi(id); n%2 == 1 {
			free++
			if after := time.Since(killed); after > patient.After+10*time.Second {
				t.Errorf("task %s, which needs no key, runs again after %v", id, after)
			}
		}
		again[id] = true
	}
	t.Logf("all tasks run again after %v", time.Since(killed))
	if len(again) != tasks || free != tasks/2 {
		t.Errorf("these run again: %v", again)
	}
}

// Its lock would have lasted for longer.
func TestAStoppedWorkerLearnsThatItsTaskWasTakenBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := rigOn(t, server)
	producer, err := attach.NewProducer(r.client, attach.ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	task, err := producer.EnqueueContext(t.Context(), asynq.NewTask("test", []byte("order:1")), asynq.MaxRetry(0), attach.Keys("order:1"))
	if err != nil {
		t.Fatal(err)
	}
	stops := r.begins(server, 1)
	var seen recoveries
	a := r.attach(asynq.Config{Concurrency: 2}, attach.Options{Recovery: patient, Observer: seen.observe})
	claimed, finish := make(chan error, 2), make(chan struct{})
	r.serve(a.Client(), a.Config(), handlers(a, func(ctx context.Context, _ *asynq.Task) error {
		lease, _ := locking.FromContext(ctx)
		token, err := lease.Fence(ctx)
		if err == nil {
			err = claim.Run(ctx, r.client, []string{"resource"}, token).Err()
		}
		claimed <- err
		<-finish
		return errors.Join(err, ctx.Err())
	}))
	r.reports(2)
	stops.Signal(t, syscall.SIGSTOP)
	stopped := time.Now()
	if err := receive(t, claimed); err != nil {
		t.Fatal(err)
	}
	run := r.client.HGet(t.Context(), "asynq:{default}:t:"+task.ID, "pending_since").Val()
	<-time.After(time.Until(stopped.Add(stoppedFor)))
	stops.Signal(t, syscall.SIGCONT)
	if says, want := stops.Says(t), "ended 0 true silent"; says != want {
		t.Errorf("the worker says %q; want %q", says, want)
	}
	<-time.After(time.Second) // its acknowledgement has arrived
	if info := r.settled(task, asynq.TaskStateActive); info.Retried != 0 {
		t.Errorf("%+v", info)
	}
	if now := r.client.HGet(t.Context(), "asynq:{default}:t:"+task.ID, "pending_since").Val(); now != run {
		t.Errorf("the acknowledgement has ended the run %q: it is now %q", run, now)
	}
	close(finish)
	for began := time.Now(); r.client.Exists(t.Context(), "asynq:{default}:t:"+task.ID).Val() == 1; <-time.After(2 * time.Millisecond) {
		if time.Since(began) > limit {
			t.Fatal("the task has not ended")
		}
	}
	if q, err := r.inspect.GetQueueInfo("default"); err != nil || q.Processed != 1 || q.Failed != 0 {
		t.Errorf("%+v, %v", q, err)
	}
	if n := seen.counted()[delayqueue.Task{Queue: "default", ID: task.ID}]; n != 1 {
		t.Errorf("the task was taken back %d times", n)
	}
}
