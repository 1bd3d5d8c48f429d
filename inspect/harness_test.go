package inspect_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// limit bounds every wait for an event.
const limit = 30 * time.Second

// rig is a Redis with tasks and locks, and an Inspector of it.
type rig struct {
	testing.TB
	server  *redistest.Server
	client  *redis.Client
	tasks   *asynq.Client
	inspect *inspect.Inspector
}

func newRig(t testing.TB) *rig {
	t.Helper()
	server := redistest.Start(t)
	client := server.Client(t)
	return &rig{t, server, client, asynq.NewClientFromRedisClient(client), newInspector(t, inspect.Options{Tasks: client})}
}

// newInspector returns an Inspector, until the end of the test.
func newInspector(t testing.TB, o inspect.Options) *inspect.Inspector {
	t.Helper()
	i, err := inspect.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	return i
}

// byPayload takes the payload for the key.
func byPayload(_ context.Context, task *asynq.Task) ([]string, error) {
	return []string{string(task.Payload())}, nil
}

// serve runs a server with locks until stop is called, or the end of the test.
func (r *rig) serve(opts attach.Options, handler asynq.HandlerFunc) (stop func()) {
	r.Helper()
	a, err := attach.New(r.client, asynq.Config{
		Concurrency: 4, LogLevel: asynq.FatalLevel, TaskCheckInterval: 10 * time.Millisecond,
	}, opts)
	if err != nil {
		r.Fatal(err)
	}
	s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
	if err := s.Start(a.Lock(byPayload)(handler)); err != nil {
		r.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		a.Stop()
		s.Shutdown()
		if err := a.Close(); err != nil {
			r.Error(err)
		}
	})
	r.Cleanup(stop)
	return stop
}

// enqueue adds a task that wants a key.
func (r *rig) enqueue(key, id string) {
	r.Helper()
	if _, err := r.tasks.Enqueue(asynq.NewTask("order:audit", []byte(key)), asynq.TaskID(id)); err != nil {
		r.Fatal(err)
	}
}

// holding starts a server whose tasks hold their keys until release is closed, and returns once a task holds key.
func (r *rig) holding(opts attach.Options, key, id string, release <-chan struct{}) (stop func()) {
	r.Helper()
	begun := make(chan struct{}, 100)
	stop = r.serve(opts, func(ctx context.Context, _ *asynq.Task) error {
		begun <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	})
	r.enqueue(key, id)
	r.receive(begun)
	return stop
}

// receive waits for an event.
func (r *rig) receive(event <-chan struct{}) {
	r.Helper()
	select {
	case <-event:
	case <-time.After(limit):
		r.Fatal("it did not happen in time")
	}
}

// eventually waits until check holds.
func (r *rig) eventually(what string, check func() bool) {
	r.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !check(); <-tick.C {
		if time.Now().After(end) {
			r.Fatalf("it was not so in time: %s", what)
		}
	}
}
