package attach_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// elsewhere returns a Locker on a Redis of its own.
func elsewhere(t *testing.T) *locking.Single {
	t.Helper()
	l, err := locking.NewSingle(redistest.Start(t).Client(t), locking.SingleOptions{})
	ok(t, err)
	t.Cleanup(func() { ok(t, l.Close()) })
	return l
}

// overlaps counts the tasks that run while another one of their key does.
type overlaps struct {
	inside  [4]atomic.Int32 // by key
	n, done atomic.Int32
}

func (o *overlaps) ProcessTask(_ context.Context, task *asynq.Task) error {
	inside := &o.inside[task.Payload()[0]-'a']
	if inside.Add(1) > 1 {
		o.n.Add(1)
	}
	<-time.After(time.Millisecond)
	inside.Add(-1)
	o.done.Add(1)
	return nil
}

func TestAServerWithItsLocksElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	r, seen := newRig(t), &overlaps{}
	first := r.attach(asynq.Config{Concurrency: 8}, attach.Options{})
	server := r.serve(first.Client(), first.Config(), first.Lock(byPayload)(seen))
	r.until("the first server reports", func() bool { return len(r.client.Keys(t.Context(), "railtoken:worker:*").Val()) == 1 })

	log := newLines("its locks are elsewhere")
	second := r.attach(asynq.Config{Concurrency: 8, Logger: log, LogLevel: asynq.ErrorLevel}, attach.Options{Locker: elsewhere(t)})
	r.serve(second.Client(), second.Config(), second.Lock(byPayload)(seen))
	receive(t, log.seen)
	refusal, refused := errors.AsType[*attach.SeparateLocksError](second.Check(t.Context()))
	if !refused || refusal.Queue != "default" || refusal.PID == 0 || refusal.Store == refusal.Other {
		t.Errorf("Check returns %+v", refusal)
	}
	const tasks = 300
	for i := range tasks {
		r.enqueue(string(rune('a' + i%4)))
	}
	r.until("all tasks ran", func() bool { return seen.done.Load() == tasks })
	if n := seen.n.Load(); n > 0 {
		t.Errorf("%d tasks ran beside another one of their key", n)
	}

	server.Shutdown()
	ok(t, first.Close())
	r.enqueue("a")
	r.until("the second server has taken over", func() bool { return seen.done.Load() == tasks+1 })
}

func TestServersWithSeparateLocksRunIfAllowed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.attach(asynq.Config{}, attach.Options{})
	r.serve(first.Client(), first.Config(), asynq.NotFoundHandler())
	r.until("the first server reports", func() bool { return len(r.client.Keys(t.Context(), "railtoken:worker:*").Val()) == 1 })
	log := newLines("has its locks elsewhere")
	second := r.attach(asynq.Config{}, attach.Options{
		Locker: elsewhere(t), AllowSeparateLocks: true, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	ok(t, second.Check(t.Context()))
	r.serve(second.Client(), second.Config(), asynq.NotFoundHandler())
	receive(t, log.seen)
	r.until("both report", func() bool { return len(r.client.Keys(t.Context(), "railtoken:worker:*").Val()) == 2 })
}

// Each of two servers that start at the same moment sees the other one, or one of them does. Never may both fetch.
func TestOfTwoRivalServersAtOnceOneFetches(t *testing.T) {
	t.Parallel()
	for range 5 {
		r := newRig(t)
		locks := []*locking.Single{elsewhere(t), elsewhere(t)}
		var fetching sync.Map
		var started sync.WaitGroup
		start := make(chan struct{})
		for i, locker := range locks {
			a := r.attach(asynq.Config{}, attach.Options{Locker: locker})
			s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
			t.Cleanup(s.Shutdown)
			h := a.Lock(byPayload)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				fetching.Store(i, true)
				return nil
			}))
			started.Go(func() {
				<-start
				if err := s.Start(h); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		started.Wait()
		var tasks []*asynq.TaskInfo
		for range 20 {
			tasks = append(tasks, r.enqueue("a", asynq.Retention(time.Hour)))
		}
		for _, task := range tasks {
			r.settled(task, asynq.TaskStateCompleted)
		}
		n := 0
		fetching.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Errorf("%d servers have fetched tasks", n)
		}
	}
}

func TestAServerIsComparedOnlyWithItsRivals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		queue   string
		opts    func(t *testing.T) attach.Options
		refused bool
	}{
		"another queue":   {"other", func(t *testing.T) attach.Options { return attach.Options{Locker: elsewhere(t)} }, false},
		"without reports": {"default", func(t *testing.T) attach.Options { return attach.Options{Locker: elsewhere(t), DisableReports: true} }, true},
		"a store that is not known": {"default", func(t *testing.T) attach.Options {
			return attach.Options{Locker: struct{ locking.Locker }{elsewhere(t)}}
		}, false},
		"locks in the same place": {"default", func(*testing.T) attach.Options { return attach.Options{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			first := r.attach(asynq.Config{}, attach.Options{})
			r.serve(first.Client(), first.Config(), asynq.NotFoundHandler())
			r.until("the first server reports", func() bool { return len(r.client.Keys(t.Context(), "railtoken:worker:*").Val()) == 1 })
			second := r.attach(asynq.Config{Queues: map[string]int{tt.queue: 1}}, tt.opts(t))
			err := second.Check(t.Context())
			if _, refused := errors.AsType[*attach.SeparateLocksError](err); refused != tt.refused || !refused && err != nil {
				t.Errorf("Check returns %v", err)
			}
		})
	}
}

// Write makes a Writer of slog's.
func (l *lines) Write(line []byte) (int, error) {
	l.note(string(line))
	return len(line), nil
}

// until waits for a condition.
func (r *rig) until(what string, done func() bool) {
	r.Helper()
	for began := time.Now(); !done(); <-time.After(2 * time.Millisecond) {
		if time.Since(began) > limit {
			r.Fatalf("not yet: %s", what)
		}
	}
}
