package explain_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/explain"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

const limit = 30 * time.Second

// job is the payload of the tests' tasks.
type job struct {
	Key   string
	Fails bool
}

// errBroken is why tasks fail.
var errBroken = errors.New("the warehouse does not answer")

// system is a Redis with tasks, and a worker.
type system struct {
	*testing.T
	server    *redistest.Server
	client    *redis.Client
	tasks     *asynq.Client
	inspector *asynq.Inspector
	options   explain.Options
	events    chan middleware.Event
	worker    *worker.Worker
	cfg       worker.Config
}

func newSystem(t *testing.T) *system {
	t.Helper()
	server := redistest.Start(t)
	client := server.Client(t)
	s := &system{
		T: t, server: server, client: client, events: make(chan middleware.Event, 1000),
		tasks: asynq.NewClientFromRedisClient(client), inspector: asynq.NewInspectorFromRedisClient(client),
	}
	s.cfg = worker.Config{
		Redis: worker.Redis{Addr: server.Addr()}, Logger: slog.New(slog.DiscardHandler), Concurrency: 2,
		ShutdownTimeout: 10 * time.Millisecond,
		RetryDelayFunc:  func(int, error, *asynq.Task) time.Duration { return time.Hour },
		Observer: func(_ context.Context, e middleware.Event) {
			select {
			case s.events <- e:
			default:
			}
		},
	}
	return s
}

// start runs the worker until the end of the test. The types of its tasks say what happens on a conflict.
func (s *system) start() *system {
	s.Helper()
	w, err := worker.New(s.cfg)
	if err != nil {
		s.Fatal(err)
	}
	for name, strategy := range map[string]middleware.Strategy{
		"any":     middleware.Requeue{},
		"slot":    middleware.Wait{Max: time.Minute},
		"strict":  middleware.Requeue{Order: middleware.StrictFIFO},
		"limited": middleware.Requeue{Limits: delayqueue.Limits{Conflicts: 1}},
		"cancel":  middleware.Supersede{Grace: time.Minute, Group: "orders"},
		"crowded": middleware.Requeue{Limits: delayqueue.Limits{Waiters: 1}},
	} {
		if err := worker.Handle(w, name, worker.Handler[job]{
			Strategy: strategy, Keys: func(j job) []string { return []string{j.Key} },
			Run: func(ctx context.Context, j job) error {
				if j.Fails {
					return errBroken
				}
				<-ctx.Done()
				return ctx.Err()
			},
		}); err != nil {
			s.Fatal(err)
		}
	}
	if err := w.Start(context.Background()); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = w.Shutdown() })
	s.worker = w
	s.until("the server has reported", func() bool {
		servers, err := s.inspector.Servers()
		return err == nil && len(servers) > 0
	})
	return s.look(inspect.Options{Tasks: s.client})
}

// look makes the Inspector.
func (s *system) look(o inspect.Options) *system {
	s.Helper()
	i, err := inspect.New(o)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = i.Close() })
	s.options.Tasks, s.options.Inspector = s.client, i
	return s
}

// lockServers starts five of them for the locks.
func (s *system) lockServers(guard locking.GuardMode) []*redistest.Server {
	s.Helper()
	servers := make([]*redistest.Server, 5)
	for i := range servers {
		servers[i] = redistest.Start(s)
		s.cfg.LockRedis.Nodes = append(s.cfg.LockRedis.Nodes, servers[i].Addr())
	}
	s.cfg.LockGuard, s.options.Redlock = guard, true
	s.start()
	nodes := make([]*redis.Options, len(servers))
	for i, server := range servers {
		nodes[i] = &redis.Options{Addr: server.Addr()}
	}
	s.look(inspect.Options{Tasks: s.client, Nodes: nodes, Redlock: locking.RedlockOptions{Guard: guard}})
	return servers
}

// enqueue adds a task.
func (s *system) enqueue(taskType string, j job, opts ...asynq.Option) delayqueue.Task {
	s.Helper()
	data, err := json.Marshal(j)
	if err != nil {
		s.Fatal(err)
	}
	info, err := s.tasks.Enqueue(asynq.NewTask(taskType, data), opts...)
	if err != nil {
		s.Fatal(err)
	}
	return delayqueue.Task{Queue: info.Queue, ID: info.ID}
}

// await adds a task and waits for an event of it.
func (s *system) await(kind middleware.EventKind, taskType string, j job, opts ...asynq.Option) delayqueue.Task {
	s.Helper()
	t := s.enqueue(taskType, j, opts...)
	s.receive(t, kind)
	return t
}

func (s *system) receive(t delayqueue.Task, kind middleware.EventKind) {
	s.Helper()
	for {
		if e := redistest.Receive(s, s.events, limit); e.Kind == kind && e.Task == t {
			return
		}
	}
}

// settled waits until a task is in a state.
func (s *system) settled(t delayqueue.Task, state string) delayqueue.Task {
	s.Helper()
	s.until("task "+t.String()+" is "+state, func() bool {
		return s.client.HGet(s.Context(), "asynq:{"+t.Queue+"}:t:"+t.ID, "state").Val() == state
	})
	return t
}

// until waits until something is so.
func (s *system) until(what string, so func() bool) {
	s.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !so(); <-tick.C {
		if time.Now().After(end) {
			s.Fatalf("it was not so in time: %s", what)
		}
	}
}

// explain explains a task.
func (s *system) explain(t delayqueue.Task) explain.Explanation {
	s.Helper()
	e, err := explain.Task(s.Context(), s.options, t)
	if err != nil {
		s.Fatal(err)
	}
	return e
}

func redisZ(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }
