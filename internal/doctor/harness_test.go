package doctor_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/doctor"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// job is the payload of the tests' tasks.
type job struct{ Key string }

// system is a Redis that is fit, with workers on it.
type system struct {
	*testing.T
	server *redistest.Server
	client *redis.Client
	src    doctor.Sources
	events chan middleware.Event
	locker *locking.Single
}

// newSystem starts a Redis that is fit, or not with args.
func newSystem(t *testing.T, args ...string) *system {
	t.Helper()
	if args == nil {
		args = []string{"--appendonly", "yes"}
	}
	server := redistest.Start(t, args...)
	s := &system{T: t, server: server, client: server.Client(t), events: make(chan middleware.Event, 1000)}
	s.src = doctor.Sources{Tasks: s.client, Resolve: func(context.Context, string) ([]string, error) {
		return nil, errors.New("no host is resolved here")
	}}
	inspector, err := inspect.New(inspect.Options{Tasks: s.client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inspector.Close() })
	s.src.Inspector = inspector
	return s
}

// worker runs a worker until the end of the test. Its tasks have types "fifo", "strict" and "any", which say
// what order they keep. Those of type "strict" fail, the others run until the end.
func (s *system) worker(mods ...func(*worker.Config)) {
	s.Helper()
	cfg := worker.Config{
		Redis: worker.Redis{Addr: s.server.Addr()}, Logger: slog.New(slog.DiscardHandler),
		ShutdownTimeout: 10 * time.Millisecond,
		Observer: func(_ context.Context, e middleware.Event) {
			select {
			case s.events <- e:
			default:
			}
		},
	}
	for _, mod := range mods {
		mod(&cfg)
	}
	w, err := worker.New(cfg)
	if err != nil {
		s.Fatal(err)
	}
	for name, strategy := range map[string]middleware.Strategy{
		"any": middleware.Requeue{}, "fifo": middleware.Requeue{Order: middleware.FIFO},
	} {
		if err := worker.Handle(w, name, worker.Handler[job]{
			Strategy: strategy, Keys: func(j job) []string { return []string{j.Key} },
			Run: func(ctx context.Context, _ job) error { <-ctx.Done(); return ctx.Err() },
		}); err != nil {
			s.Fatal(err)
		}
	}
	if err := worker.Handle(w, "strict", worker.Handler[job]{
		Strategy: middleware.Requeue{Order: middleware.StrictFIFO}, Keys: func(j job) []string { return []string{j.Key} },
		Run: func(context.Context, job) error { return errors.New("no paper") },
	}); err != nil {
		s.Fatal(err)
	}
	if err := w.Start(context.Background()); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = w.Shutdown() })
}

// hold takes a key until the end of the test.
func (s *system) hold(key string) *locking.Lease {
	s.Helper()
	return s.holdAs(key, "")
}

// holdAs takes a key until the end of the test, with a label.
func (s *system) holdAs(key, label string) *locking.Lease {
	s.Helper()
	if s.locker == nil {
		locker, err := locking.NewSingle(s.client, locking.SingleOptions{})
		if err != nil {
			s.Fatal(err)
		}
		s.locker = locker
		s.Cleanup(func() { _ = locker.Close() })
	}
	lease, err := s.locker.Acquire(context.Background(), []string{key}, locking.Options{Label: label})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

// enqueue adds a task.
func (s *system) enqueue(taskType, key string, opts ...asynq.Option) delayqueue.Task {
	s.Helper()
	data, err := json.Marshal(job{key})
	if err != nil {
		s.Fatal(err)
	}
	info, err := asynq.NewClientFromRedisClient(s.client).Enqueue(asynq.NewTask(taskType, data), opts...)
	if err != nil {
		s.Fatal(err)
	}
	return delayqueue.Task{Queue: info.Queue, ID: info.ID}
}

// await waits for an event of a task.
func (s *system) await(t delayqueue.Task, kind middleware.EventKind) {
	s.Helper()
	for {
		if e := redistest.Receive(s, s.events, 30*time.Second); e.Kind == kind && e.Task == t {
			return
		}
	}
}

// parked adds a task that waits for a key.
func (s *system) parked(taskType, key string, opts ...asynq.Option) delayqueue.Task {
	s.Helper()
	t := s.enqueue(taskType, key, append(opts, asynq.Timeout(time.Minute))...)
	s.await(t, middleware.Parked)
	return t
}

// abandoned adds a task to a queue without a server. A worker that has died runs it, and asynq's lease on it ends after left.
func (s *system) abandoned(key string, left time.Duration) delayqueue.Task {
	s.Helper()
	t := s.enqueue("any", key, asynq.Queue("audits"), asynq.Timeout(time.Minute))
	s.fetched(t, left)
	return t
}

// fetched has a worker fetch the one task of the queue of audits.
func (s *system) fetched(t delayqueue.Task, left time.Duration) {
	s.Helper()
	s.do("LMOVE", "asynq:{audits}:pending", "asynq:{audits}:active", "LEFT", "LEFT")
	s.do("HSET", "asynq:{audits}:t:"+t.ID, "state", "active")
	s.do("ZADD", "asynq:{audits}:lease", time.Now().Add(left).Unix(), t.ID)
}

// takenBack has another worker take back the task of one that has died.
func (s *system) takenBack(t delayqueue.Task) {
	s.Helper()
	const run = "0123456789abcdefDEADDEAD.1"
	s.do("HSET", "asynq:{audits}:t:"+t.ID, "pending_since", run)
	left, err := (*line.Engine)(s.src.Inspector.Queue()).TakeBack(s.Context(), line.Remnant{Task: line.Task(t), Run: run, Silent: true}, 3,
		func([]string) (bool, error) { return true, nil })
	if err != nil || left != line.Back {
		s.Fatalf("the task is %v, %v", left, err)
	}
}

// crowd makes tasks wait for a key, of which so many have run in each of the last minutes; 0 for nothing known.
func (s *system) crowd(waiting, perMinute int) {
	s.Helper()
	s.worker(func(c *worker.Config) { c.DisableReports = true })
	s.hold("order:1")
	for range waiting {
		s.parked("any", "order:1")
	}
	for n := range 6 {
		p := holdings.Point{Waiting: waiting, Holds: perMinute}
		at := time.Now().Add(time.Duration(1-n) * time.Minute) // the next one, too, which may begin meanwhile
		if perMinute == 0 {
			continue
		}
		if _, err := holdings.Remember(s.Context(), s.client, at, p, map[string]holdings.Point{"order:1": p}, false); err != nil {
			s.Fatal(err)
		}
	}
}

// nodes starts lock servers. They seem to be on machines of their own, with encrypted connections.
func (s *system) nodes(n int, args ...string) []*redistest.Server {
	s.Helper()
	servers := make([]*redistest.Server, n)
	for i := range servers {
		servers[i] = redistest.Start(s, args...)
		s.node(string(rune('a'+i))+".example:6379", servers[i])
	}
	return servers
}

// node adds a lock server with an address of its own.
func (s *system) node(addr string, server *redistest.Server) {
	s.src.Nodes = append(s.src.Nodes, server.Client(s.T, at(addr, server.Addr()), func(o *redis.Options) {
		o.MaxRetries, o.DialerRetries = -1, 1
	}))
}

// examine returns the report.
func (s *system) examine() doctor.Report {
	s.Helper()
	report, err := doctor.Examine(s.Context(), s.src)
	if err != nil {
		s.Fatal(err)
	}
	return report
}

// found returns the findings of one check.
func found(r doctor.Report, check string) []doctor.Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f doctor.Finding) bool { return f.Check != check })
}

// at makes a client believe that its server is at another address, encrypted.
func at(addr, server string) func(*redis.Options) {
	return func(o *redis.Options) {
		o.Addr, o.TLSConfig = addr, encrypted
		o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", server)
		}
	}
}

// rewriting changes replies of a real server.
type rewriting struct{ change func(redis.Cmder) }

func (rewriting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r rewriting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		r.change(cmd)
		return err
	}
}

func (rewriting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// slow is a connection that answers late.
type slow struct{ net.Conn }

func (c slow) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(30 * time.Millisecond) // the distance that the test is about
	return n, err
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not say %q", text, part)
		}
	}
}

// until waits until something is so.
func (s *system) until(so func() bool) {
	s.Helper()
	for deadline := time.Now().Add(30 * time.Second); !so(); {
		if time.Now().After(deadline) {
			s.Fatal("it has not come to that in 30s")
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-s.Context().Done():
		}
	}
}

func sorted(all []string) []string {
	slices.Sort(all)
	return all
}

// reported waits until a worker has reported that a task holds its key.
func (s *system) reported(t delayqueue.Task) {
	s.Helper()
	s.await(t, middleware.Acquired)
	s.until(func() bool {
		for _, name := range s.client.Keys(s.Context(), "railtoken:worker:*").Val() {
			if strings.Contains(s.client.Get(s.Context(), name).Val(), t.ID) {
				return true
			}
		}
		return false
	})
}
