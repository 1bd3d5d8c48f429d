package attach_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// Tasks in lanes and beside them are processed by a server that names the queues without their lanes: each once, and no two tasks
// of a key at the same time, wherever they are and however their keys are known.
func TestTasksOfLanesExcludeEachOther(t *testing.T) {
	t.Parallel()
	client := redistest.StartCluster(t, 3).Client(t)
	l, _ := lanes.New(64)
	plain := asynq.NewClientFromRedisClient(client)
	producer := laneProducer(t, client, 64)
	recorded := func(task *asynq.Task, keys []string) error {
		_, err := producer.EnqueueContext(t.Context(), task, attach.Keys(keys...))
		return err
	}
	beside := func(task *asynq.Task, _ []string) error {
		_, err := plain.Enqueue(task)
		return err
	}
	const timer = 10 * time.Minute // no task may need it
	best, fifo := middleware.Requeue{Delay: timer}, middleware.Requeue{Delay: timer, Order: middleware.FIFO}
	for name, tt := range map[string]struct {
		keys     int // of each task
		strategy middleware.Strategy
		// enqueue has two ways by turns. A task that nobody has recorded the keys of has them found by the server.
		enqueue [2]func(*asynq.Task, []string) error
	}{
		"recorded":                    {1, best, [2]func(*asynq.Task, []string) error{recorded, recorded}},
		"recorded, in order":          {1, fifo, [2]func(*asynq.Task, []string) error{recorded, recorded}},
		"keys of several lanes":       {3, best, [2]func(*asynq.Task, []string) error{recorded, recorded}},
		"some without lanes":          {1, best, [2]func(*asynq.Task, []string) error{recorded, beside}},
		"some without lanes in order": {1, fifo, [2]func(*asynq.Task, []string) error{recorded, beside}},
		"several, some without lanes": {2, best, [2]func(*asynq.Task, []string) error{recorded, beside}},
		"found": {1, best, [2]func(*asynq.Task, []string) error{recorded, func(task *asynq.Task, keys []string) error {
			_, err := plain.Enqueue(task, asynq.Queue(l.Queue("found", l.Of(keys[0]))))
			return err
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			excludes(t, client, name, tt.keys, tt.strategy, tt.enqueue)
		})
	}
	t.Cleanup(func() {
		if got := client.Get(context.Background(), "railtoken:lanes").Val(); got != "64" {
			t.Errorf("the record of the lanes is %q", got)
		}
	})
}

// excludes enqueues tasks of a few keys, and has a server run them in the queue with this name.
func excludes(t *testing.T, client redis.UniversalClient, queue string, keys int, strategy middleware.Strategy, enqueue [2]func(*asynq.Task, []string) error) {
	t.Helper()
	const orders, tasks = 15, 150
	a, err := attach.New(client, asynq.Config{Concurrency: 8, Queues: map[string]int{queue: 2, queue + " too": 1}}, attach.Options{
		Lanes: 64, Strategy: strategy, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	runs, running := map[string]int{}, map[string]bool{}
	mark := func(all []string, is bool) {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range all {
			if is && running[key] {
				t.Errorf("two tasks of %s run at the same time", key)
			}
			running[key] = is
		}
	}
	done := make(chan struct{})
	handler := a.Lock(middleware.PayloadKeys(func(all []string) []string { return all }))(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		var all []string
		if err := json.Unmarshal(task.Payload(), &all); err != nil {
			return err
		}
		mark(all, true)
		err := client.Ping(ctx).Err()
		mark(all, false)
		id, _ := asynq.GetTaskID(ctx)
		mu.Lock()
		defer mu.Unlock()
		runs[id]++
		if len(runs) == tasks && runs[id] == 1 {
			close(done)
		}
		return err
	}))
	for i := range tasks {
		var all []string
		for k := range keys {
			all = append(all, fmt.Sprint(queue, ":order:", (i*7+k*(1+i%3))%orders))
		}
		slices.Sort(all)
		all = slices.Compact(all)
		payload, _ := json.Marshal(all)
		into := asynq.Queue([]string{queue, queue + " too"}[i/2%2])
		if err := enqueue[i%2](asynq.NewTask("test", payload, into), all); err != nil {
			t.Fatal(err)
		}
	}
	server := asynq.NewServerFromRedisClient(a.Client(), a.Config())
	if err := server.Start(handler); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Shutdown(); _ = a.Close() })
	redistest.Receive(t, done, 90*time.Second)
	mu.Lock()
	defer mu.Unlock()
	for id, times := range runs {
		if times != 1 {
			t.Errorf("task %s ran %d times", id, times)
		}
	}
}

// A task that waits for a key comes when the key is released, though another lane has waited for its turn.
func TestATaskThatIsWokenWaitsForNoTurn(t *testing.T) {
	t.Parallel()
	client := redistest.StartCluster(t, 3).Client(t)
	a, err := attach.New(client, asynq.Config{Concurrency: 1, Queues: map[string]int{"orders": 1}}, attach.Options{
		Lanes: 64, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	producer := laneProducer(t, client, 64)
	put := func(id, key string, opts ...asynq.Option) {
		t.Helper()
		opts = append(opts, asynq.Queue("orders"), asynq.TaskID(id), attach.Keys(key))
		if _, err := producer.EnqueueContext(t.Context(), asynq.NewTask("test", []byte(key)), opts...); err != nil {
			t.Fatal(err)
		}
	}
	began, end := make(chan string, 3), make(chan struct{})
	server := asynq.NewServerFromRedisClient(a.Client(), a.Config())
	t.Cleanup(func() { server.Shutdown(); _ = a.Close() })
	byPayload := func(_ context.Context, task *asynq.Task) ([]string, error) {
		return []string{string(task.Payload())}, nil
	}
	if err := server.Start(a.Lock(byPayload)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		began <- id
		if id == "holds" {
			<-end
		}
		return nil
	}))); err != nil {
		t.Fatal(err)
	}
	put("holds", "a")
	if got := redistest.Receive(t, began, 30*time.Second); got != "holds" {
		t.Fatal(got)
	}
	put("waits", "a", attach.WhenHeld(middleware.Requeue{}))
	put("other", "b")                    // in another lane: the server hears of it by a notice, or by a look
	<-time.After(300 * time.Millisecond) // the work of the task, which is longer than a turn
	close(end)
	for _, want := range []string{"waits", "other"} {
		if got := redistest.Receive(t, began, 30*time.Second); got != want {
			t.Errorf("%s runs, want %s", got, want)
		}
	}
}

// A task without known keys, one in a group and one of a plain client are in the queue itself; those with keys in a lane, wherever
// the queue is named.
func TestTasksGoToTheLaneOfTheirKeys(t *testing.T) {
	t.Parallel()
	client := redistest.StartCluster(t, 3).Client(t)
	p := laneProducer(t, client, 64)
	l, _ := lanes.New(64)
	home := l.Queue("orders", l.Of("order:1"))
	for name, tt := range map[string]struct {
		task *asynq.Task
		opts []asynq.Option
		want string
	}{
		"a queue among the options":   {asynq.NewTask("test", nil), []asynq.Option{asynq.Queue("orders"), attach.Keys("order:1")}, home},
		"a queue of the task":         {asynq.NewTask("test", nil, asynq.Queue("orders")), []asynq.Option{attach.Keys("order:1")}, home},
		"no queue":                    {asynq.NewTask("test", nil), []asynq.Option{attach.Keys("order:1")}, l.Queue("default", l.Of("order:1"))},
		"a queue in another lane":     {asynq.NewTask("test", nil), []asynq.Option{asynq.Queue(l.Queue("orders", 3)), attach.Keys("order:1")}, home},
		"several keys":                {asynq.NewTask("test", nil), []asynq.Option{asynq.Queue("orders"), attach.Keys("order:9", "order:1")}, home},
		"later":                       {asynq.NewTask("test", nil), []asynq.Option{asynq.Queue("orders"), asynq.ProcessIn(time.Hour), attach.Keys("order:1")}, home},
		"no keys":                     {asynq.NewTask("test", nil), []asynq.Option{asynq.Queue("orders")}, "orders"},
		"a group":                     {asynq.NewTask("test", nil), []asynq.Option{asynq.Queue("orders"), asynq.Group("g"), attach.Keys("order:1")}, "orders"},
		"a group that the task names": {asynq.NewTask("test", nil, asynq.Group("g")), []asynq.Option{asynq.Queue("orders"), attach.Keys("order:1")}, "orders"},
	} {
		info, err := p.EnqueueContext(t.Context(), tt.task, tt.opts...)
		if err != nil || info.Queue != tt.want {
			t.Errorf("%s: it is in %v, error %v, want %s", name, info, err, tt.want)
			continue
		}
		if client.Exists(t.Context(), "asynq:{"+tt.want+"}:t:"+info.ID).Val() != 1 {
			t.Errorf("%s: it is not in %s", name, tt.want)
		}
	}
	info, err := p.EnqueueInOrder(t.Context(), "order:1", asynq.NewTask("test", nil), asynq.Queue("orders"))
	if err != nil || info.Queue != home {
		t.Errorf("in order: it is in %v, error %v", info, err)
	}
	if _, err := p.EnqueueContext(t.Context(), asynq.NewTask("test", nil), asynq.Queue("a{b}"), attach.Keys("order:1")); err == nil ||
		!strings.Contains(err.Error(), "brace") {
		t.Errorf("a queue with a brace: %v", err)
	}
}

func laneProducer(t *testing.T, client redis.UniversalClient, n int) *attach.Producer {
	t.Helper()
	p, err := attach.NewProducer(client, attach.ProducerOptions{Lanes: n, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// Processes with another number of lanes would lock keys under other names: whoever comes first decides, and the others are refused
// before they do anything.
func TestOtherNumbersOfLanesAreRefused(t *testing.T) {
	t.Parallel()
	does := map[string]func(t *testing.T, client *redis.ClusterClient, n int) error{
		"a producer": func(t *testing.T, client *redis.ClusterClient, n int) error {
			_, err := laneProducer(t, client, n).EnqueueContext(t.Context(), asynq.NewTask("test", nil), attach.Keys("k"))
			return err
		},
		"a server": func(t *testing.T, client *redis.ClusterClient, n int) error {
			return attachedIn(t, client, n).Check(t.Context())
		},
		"its locker": func(t *testing.T, client *redis.ClusterClient, n int) error {
			lease, err := attachedIn(t, client, n).Locker().Acquire(t.Context(), []string{"k"}, locking.Options{})
			if err == nil {
				err = lease.Release(t.Context())
			}
			return err
		},
		"a queue": func(t *testing.T, client *redis.ClusterClient, n int) error {
			q, err := delayqueue.New(client, delayqueue.Options{Lanes: n})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = q.Close() })
			_, err = q.Wake(t.Context(), "k", delayqueue.WakeOptions{})
			return err
		},
	}
	for first, begin := range does {
		for _, n := range []int{0, 64} {
			t.Run(fmt.Sprintf("%s with %d comes first", first, n), func(t *testing.T) {
				t.Parallel()
				client := redistest.StartCluster(t, 3).Client(t)
				if err := begin(t, client, n); err != nil {
					t.Fatal(err)
				}
				for what, do := range does {
					if err := do(t, client, n); err != nil {
						t.Errorf("%s with the same number: %v", what, err)
					}
					for _, other := range []int{0, 16, 64} {
						err := do(t, client, other)
						if want := fmt.Sprintf("give all processes Lanes = %d (RAILTOKEN_LANES)", n); other != n &&
							(err == nil || errors.Is(err, locking.ErrUnavailable) || !strings.Contains(err.Error(), want)) {
							t.Errorf("%s with %d lanes: %v", what, other, err)
						}
					}
				}
			})
		}
	}
}

// attachedIn returns the locks of a server with so many lanes.
func attachedIn(t *testing.T, client *redis.ClusterClient, n int) *attach.Attached {
	t.Helper()
	a, err := attach.New(client, asynq.Config{}, attach.Options{Lanes: n, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func TestLanesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _, _ = cluster.Close(), one.Close() })
	l, _ := lanes.New(64)
	tooMany := map[string]int{"off": 0} // has no priority, so it does not count
	for i := range 256 {
		tooMany[fmt.Sprint("orders", i)] = 1
	}
	most := maps.Clone(tooMany)
	delete(most, "orders0")
	for want, tt := range map[string]struct {
		client redis.UniversalClient
		cfg    asynq.Config
		opts   attach.Options
	}{
		"power of two from 16 to 1024":  {cluster, asynq.Config{}, attach.Options{Lanes: 48}},
		"lanes are for a Redis Cluster": {one, asynq.Config{}, attach.Options{Lanes: 64}},
		"brace":                         {cluster, asynq.Config{Queues: map[string]int{"a{b": 1}}, attach.Options{Lanes: 64}},
		"without its lane":              {cluster, asynq.Config{Queues: map[string]int{l.Queue("orders", 5): 1}}, attach.Options{Lanes: 64}},
		"256 queues with Lanes":         {cluster, asynq.Config{Queues: tooMany}, attach.Options{Lanes: 64}},
		"leave out one of them":         {cluster, asynq.Config{}, attach.Options{Lanes: 64, AllowUnknownAsynq: true}},
	} {
		if _, err := attach.New(tt.client, tt.cfg, tt.opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", tt.cfg.Queues, err, want)
		}
	}
	a, err := attach.New(cluster, asynq.Config{Queues: most}, attach.Options{Lanes: 64})
	if err != nil {
		t.Fatalf("255 queues with lanes: %v", err)
	}
	t.Cleanup(func() { _ = a.Close() })
	for _, n := range []int{48, -1} {
		if _, err := attach.NewProducer(cluster, attach.ProducerOptions{Lanes: n}); err == nil {
			t.Errorf("a producer with %d lanes", n)
		}
	}
	if _, err := attach.NewProducer(one, attach.ProducerOptions{Lanes: 64}); err == nil {
		t.Error("a producer with lanes on one Redis")
	}
}

// The ends of tasks in lanes are told, whoever has ended them.
func TestEndsInLanesAreTold(t *testing.T) {
	t.Parallel()
	client := redistest.StartCluster(t, 3).Client(t)
	told := make(chan string, 10)
	a, err := attach.New(client, asynq.Config{Concurrency: 2, Queues: map[string]int{"orders": 1}}, attach.Options{
		Lanes: 64, OnArchived: func(_ context.Context, info *asynq.TaskInfo, _ attach.EndReason) error {
			told <- info.Queue + "/" + info.ID
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := laneProducer(t, client, 64)
	server := asynq.NewServerFromRedisClient(a.Client(), a.Config())
	t.Cleanup(func() { server.Shutdown(); _ = a.Close() })
	key := func(_ context.Context, task *asynq.Task) ([]string, error) {
		return []string{string(task.Payload())}, nil
	}
	if err := server.Start(a.Lock(key)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return asynq.SkipRetry }))); err != nil {
		t.Fatal(err)
	}
	info, err := p.EnqueueContext(t.Context(), asynq.NewTask("test", []byte("order:1")), asynq.Queue("orders"), attach.Keys("order:1"))
	if err != nil {
		t.Fatal(err)
	}
	if got := redistest.Receive(t, told, 30*time.Second); got != info.Queue+"/"+info.ID {
		t.Errorf("the end of %s was told, not of %s/%s", got, info.Queue, info.ID)
	}
	// An operator archives one by hand, in a lane whose archive does not exist yet.
	info, err = p.EnqueueContext(t.Context(), asynq.NewTask("test", []byte("order:2")), asynq.Queue("orders"), asynq.ProcessIn(time.Hour), attach.Keys("order:2"))
	if err != nil {
		t.Fatal(err)
	}
	if err := asynq.NewInspectorFromRedisClient(client).ArchiveTask(info.Queue, info.ID); err != nil {
		t.Fatal(err)
	}
	if got := redistest.Receive(t, told, 60*time.Second); got != info.Queue+"/"+info.ID {
		t.Errorf("the end of %s was told, not of %s/%s", got, info.Queue, info.ID)
	}
}
