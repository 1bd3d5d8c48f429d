package crashtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// locks does what package locking does not export.
var locks = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

// job is a task of a scenario, and its payload.
type job struct {
	ID      string        // of the task, and of its effect
	Keys    []string      // "k" when empty
	At      time.Duration // when it is enqueued
	Hold    time.Duration // how long its handler runs
	Fails   int           // how many runs fail before one writes the effect
	Retries int           // MaxRetry
	Record  bool          // enqueued by an attach.Producer that records its keys
	InLine  bool          // enqueued by line.Engine.Enqueue
	Waits   bool          // enqueued by an attach.Producer, and parked when a key is held; without both by asynq's client
}

func (j job) keys() []string {
	if len(j.Keys) == 0 {
		return []string{"k"}
	}
	return j.Keys
}

// settings are how a process of a scenario works.
type settings struct {
	Strategy middleware.Strategy
	Queues   map[string]int
	Apart    bool // its locks are on a Redis of their own, as far as it knows
	Cluster  bool // its tasks are on a Redis Cluster, and its locks elsewhere
	Fused    bool // its locks are released with the acknowledgements, and taken with the tasks whose keys are recorded
	Eager    bool // it looks for tasks often, as a worker does that holds its keys briefly
	// NoLocks is from when until when, after the begin of the run, the locks cannot be reached.
	NoLocks [2]time.Duration
	// Beside is a second server of the same process, with a strategy and queues of its own. There is none when nil.
	Beside *settings
}

// process is a worker with connections of its own, which can be stopped.
type process struct {
	name     string
	tap      *tap
	ledger   *ledger
	servers  []*asynq.Server
	queue    *delayqueue.Queue
	single   *locking.Single
	stopping chan struct{}
	running  sync.WaitGroup
}

// begin starts a process.
func begin(t *testing.T, m *miniredis.Miniredis, name string, s settings, gate bool, l *ledger, hook *tap) *process {
	t.Helper()
	p := &process{name: name, tap: hook, ledger: l, stopping: make(chan struct{})}
	locks := redistest.VirtualClient(t, m, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	locks.AddHook(away{l.began.Add(s.NoLocks[0]), l.began.Add(s.NoLocks[1])})
	locks.AddHook(hook)
	tasks := connectTasks(t, m, s.Cluster, hook)
	var err error
	if p.single, err = locking.NewSingle(locks, locking.SingleOptions{Label: name}); err != nil {
		t.Fatal(err)
	}
	if p.queue, err = delayqueue.New(tasks, delayqueue.Options{}); err != nil {
		t.Fatal(err)
	}
	locker := locking.Locker(p.single)
	if gate {
		locker = locking.NewGate(p.single, locking.GateOptions{})
	}
	for each := &s; each != nil; each = each.Beside {
		p.serve(t, locker, each)
	}
	return p
}

// connectTasks returns a client of the Redis of the tasks.
func connectTasks(t *testing.T, m *miniredis.Miniredis, cluster bool, hook redis.Hook) redis.UniversalClient {
	t.Helper()
	var client redis.UniversalClient
	if cluster {
		client = redistest.VirtualCluster(t, m)
	} else {
		client = redistest.VirtualClient(t, m, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	}
	client.AddHook(hook)
	return client
}

// serve starts a server of the process.
func (p *process) serve(t *testing.T, locker locking.Locker, s *settings) {
	t.Helper()
	names := p.single.RedisKeys
	if s.Apart || s.Cluster {
		names = nil
	}
	if s.Fused {
		(*line.Engine)(p.queue).Colocate(locks.Colocated(locker))
	}
	lock, err := middleware.LockOn(&taskrun.Server{Queue: p.queue, RedisKeys: names, Slots: 8, Stopping: p.stopping}, middleware.Options{
		Locker: locker, Strategy: s.Strategy, Label: p.name, Key: middleware.PayloadKeys(job.keys), Observer: p.observe,
	}, taskrun.Group{})
	if err != nil {
		t.Fatal(err)
	}
	interval := 500 * time.Millisecond
	if s.Eager {
		interval = 50 * time.Millisecond
	}
	conn := (*line.Engine)(p.queue).Conn(broker.Options{Interval: interval, Queues: s.Queues, Slots: 8, Stopping: p.stopping})
	server := asynq.NewServerFromRedisClient(conn, middleware.ServerConfig(asynq.Config{
		Concurrency: 8, Queues: s.Queues, LogLevel: asynq.FatalLevel, TaskCheckInterval: broker.CheckInterval, DelayedTaskCheckInterval: time.Second,
		JanitorInterval: time.Hour,
		RetryDelayFunc:  func(int, error, *asynq.Task) time.Duration { return time.Second },
	}))
	handler := lock(asynq.HandlerFunc(p.handle))
	err = server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		p.running.Add(1)
		defer p.running.Done()
		return handler.ProcessTask(ctx, task)
	}))
	if err != nil {
		t.Fatal(err)
	}
	p.servers = append(p.servers, server)
}

// observe counts the tasks that have waited for a key.
func (p *process) observe(_ context.Context, e middleware.Event) {
	if e.Kind == middleware.Acquired && e.Waited > 0 {
		p.ledger.waited()
	}
}

// handle is the handler of all tasks.
func (p *process) handle(ctx context.Context, task *asynq.Task) error {
	var j job
	if err := json.Unmarshal(task.Payload(), &j); err != nil {
		return err
	}
	lease, ok := locking.FromContext(ctx)
	if !ok {
		return errors.New("there is no lease")
	}
	tokens := map[string]int64{}
	for _, key := range lease.Keys() {
		token, err := lease.FenceOf(ctx, key)
		if err != nil {
			return err
		}
		tokens[key] = token
	}
	e, err := p.ledger.begin(p, j, tokens)
	if err != nil {
		return err
	}
	defer p.ledger.end(e)
	select {
	case <-time.After(j.Hold):
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.tap.dead:
		return errStopped
	}
	if p.ledger.fails(e, j.Fails) {
		return errors.New("it was told to fail")
	}
	if !p.tap.effect(func() { err = p.ledger.write(e) }) {
		return errStopped
	}
	return err
}

// end lets go of everything, of a stopped process too.
func (p *process) end() {
	close(p.tap.over)
	close(p.stopping)
	for _, server := range p.servers {
		server.Shutdown()
	}
	p.running.Wait()
	_ = p.queue.Close()
	_ = p.single.Close()
}
