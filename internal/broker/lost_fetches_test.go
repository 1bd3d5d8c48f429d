package broker

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// isFetch reports whether a piece of a request fetches a task.
func isFetch(request []byte) bool { return bytes.Contains(request, []byte("}:paused")) }

// asynq would archive a task on its last attempt that was fetched and never begun.
func TestATaskWhoseFetchIsNotAnsweredRuns(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	proxy := redistest.NewProxy(t, server.Addr())
	var cuts atomic.Int64
	proxy.Cut(func(request, reply []byte) bool {
		return isFetch(request) && bytes.Contains(reply, []byte("\r\na\r\n")) && cuts.Add(1) == 1
	})
	conn := New(server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), Options{
		Interval: 10 * time.Millisecond,
		Tasks:    &witness{answers: func(Acknowledgement) (bool, error) { return false, nil }},
	})
	ran := make(chan string, 2)
	s := bareServer(t, conn, func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ran <- id
		return nil
	})
	t.Cleanup(s.Shutdown)
	tasks := asynq.NewClientFromRedisClient(admin)
	if _, err := tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a"), asynq.MaxRetry(0)); err != nil {
		t.Fatal(err)
	}
	if id := redistest.Receive(t, ran, patience); id != "a" || cuts.Load() < 2 {
		t.Errorf("%s ran, and %d replies were cut", id, cuts.Load())
	}
	if n := admin.LLen(t.Context(), "asynq:{default}:pending").Val(); n != 0 {
		t.Errorf("%d tasks are pending", n)
	}
}

// Redis may run a fetch long after its client has given it up.
func TestAFetchThatRunsLateLosesNoTask(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	proxy := redistest.NewProxy(t, server.Addr())
	w := &witness{}
	conn := New(server.Client(t, func(o *redis.Options) { o.Addr, o.ReadTimeout = proxy.Addr(), 200*time.Millisecond }),
		Options{Tasks: w})
	fetch := func() error {
		keys := []string{
			"asynq:{default}:pending", "asynq:{default}:paused", "asynq:{default}:active", "asynq:{default}:lease",
		}
		cmd, _ := conn.fetch(t.Context(), keys)
		return cmd.Err()
	}
	if err := fetch(); !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	held := proxy.Hold(isFetch)
	conn.look.fetched(false) // otherwise it would not fetch
	if err := fetch(); !errors.Is(err, redis.Nil) {
		t.Fatalf("%v, want the second attempt's answer", err)
	}
	<-held.Caught
	if _, err := asynq.NewClientFromRedisClient(admin).Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a")); err != nil {
		t.Fatal(err)
	}
	held.Deliver()
	if n := admin.LLen(t.Context(), "asynq:{default}:active").Val(); n != 0 {
		t.Errorf("%d tasks are active: the late fetch has taken one", n)
	}
	if err := fetch(); err != nil {
		t.Error(err)
	}
	if len(w.fetched) != 1 || w.fetched[0].ID != "a" {
		t.Errorf("fetched %+v", w.fetched)
	}
}
