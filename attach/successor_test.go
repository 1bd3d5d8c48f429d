package attach_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// followed is a server whose handlers take a few milliseconds, but for one that has the key "hot" until end is closed. The
// task "next" waits in memory for the key.
type followed struct {
	*rig
	server *asynq.Server
	a      *attach.Attached
	began  chan string
	parked chan string
	end    chan struct{}
}

func newFollowed(t *testing.T) *followed {
	t.Helper()
	f := &followed{rig: newRig(t), began: make(chan string, 100), parked: make(chan string, 100), end: make(chan struct{})}
	var looks atomic.Int64 // for pending tasks
	f.client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if slices.Contains(cmd.Args(), any("asynq:{default}:pending")) {
			looks.Add(1)
		}
		return next(ctx, cmd)
	}))
	f.a, f.server = f.start()
	producer := f.produce()
	for i := range 8 {
		f.record(producer, fmt.Sprint("warm", i))
		receive(t, f.began)
	}
	f.wantNoLocks()
	f.record(producer, "hot", asynq.TaskID("holder"))
	receive(t, f.began)
	f.record(producer, "hot", asynq.TaskID("next"))
	f.until("the next task was fetched", func() bool {
		return f.client.HGet(t.Context(), "asynq:{default}:t:next", "state").Val() == "active"
	})
	before := looks.Load()
	f.until("its server has read the reply, and looks again", func() bool { return looks.Load() > before })
	return f
}

func (f *followed) start() (*attach.Attached, *asynq.Server) {
	a := f.attach(asynq.Config{Concurrency: 4, ShutdownTimeout: 200 * time.Millisecond}, attach.Options{
		Observer: func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.Parked {
				f.parked <- e.Task.ID
			}
		},
	})
	return a, f.serve(a.Client(), a.Config(), a.Lock(byPayloads)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		f.began <- id
		if id == "holder" {
			select {
			case <-f.end:
			case <-ctx.Done():
				return ctx.Err()
			}
			return nil
		}
		<-time.After(5 * time.Millisecond) // the work
		return nil
	})))
}

// A holder that takes much longer than usual keeps no task in memory.
func TestASuccessorIsParkedInTime(t *testing.T) {
	t.Parallel()
	f := newFollowed(t)
	if id := receive(t, f.parked); id != "next" {
		t.Errorf("%s was parked", id)
	}
	close(f.end)
	if id := receive(t, f.began); id != "next" {
		t.Errorf("%s began", id)
	}
	f.wantNoLocks()
}

func TestASuccessorRunsWhenTheHolderEnds(t *testing.T) {
	t.Parallel()
	f := newFollowed(t)
	before := f.client.Get(t.Context(), "railtoken:lock:{hot}").Val()
	close(f.end)
	if id := receive(t, f.began); id != "next" {
		t.Errorf("%s began", id)
	}
	f.wantNoLocks()
	if len(f.parked) > 0 || before == "" {
		t.Errorf("%d tasks were parked; the lock was %q", len(f.parked), before)
	}
}

// A server that shuts down leaves no task behind that waits in its memory.
func TestAShutdownLeavesTheSuccessorToOthers(t *testing.T) {
	t.Parallel()
	f := newFollowed(t)
	f.server.Shutdown()
	if err := f.a.Close(); err != nil {
		t.Error(err)
	}
	if state := f.client.HGet(t.Context(), "asynq:{default}:t:next", "state").Val(); state == "active" {
		t.Errorf("the next task is %s", state)
	}
	close(f.end)
	f.start()
	ran := map[string]bool{}
	for range 2 {
		ran[receive(t, f.began)] = true
	}
	if !ran["next"] || !ran["holder"] {
		t.Errorf("%v have run", ran)
	}
	f.wantNoLocks()
}

// Tasks with limits are not parked by their fetch, so none of them can follow another one: a task that is woken besides the one
// that takes the key would meet a conflict each time.
func TestTasksThatCannotFollowAreWokenOneByOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const tasks = 40
	done := make(chan struct{}, 100)
	var vain atomic.Int64
	a := r.attach(asynq.Config{Concurrency: 8}, attach.Options{
		Strategy: middleware.Requeue{Limits: delayqueue.Limits{Conflicts: 100}},
		Observer: func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.Ended {
				vain.Add(1)
			}
		},
	})
	allWait := make(chan struct{})
	r.serve(a.Client(), a.Config(), a.Lock(byPayloads)(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if string(task.Payload()) == "hot" {
			<-allWait // none overtakes one that is woken
		}
		<-time.After(5 * time.Millisecond) // the work
		done <- struct{}{}
		return nil
	})))
	producer := r.produce()
	for i := range 8 {
		r.record(producer, fmt.Sprint("warm", i))
		receive(t, done)
	}
	for range tasks {
		r.record(producer, "hot")
	}
	r.until("all but one wait", func() bool {
		info, err := r.inspect.GetQueueInfo("default")
		return err == nil && info.Retry == tasks-1
	})
	close(allWait)
	for range tasks {
		receive(t, done)
	}
	if n := vain.Load(); n > tasks { // once each, but for the first one
		t.Errorf("%d runs of %d tasks have ended in a conflict", n, tasks)
	}
	r.wantNoLocks()
}

func TestALeaseIsOfTheMiddlewareThatHasTakenIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 4}, attach.Options{TTL: time.Second})
	ended := make(chan error, 100)
	lock := func(maxHold time.Duration, work time.Duration) asynq.Handler {
		wrap, err := a.LockWith(attach.LockOptions{Key: byPayloads, MaxHold: maxHold})
		if err != nil {
			t.Fatal(err)
		}
		return wrap(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			select {
			case <-ctx.Done():
			case <-time.After(work):
			}
			ended <- context.Cause(ctx)
			return nil
		}))
	}
	brief, long := lock(time.Second, 0), lock(20*time.Second, 1200*time.Millisecond)
	r.serve(a.Client(), a.Config(), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		if string(task.Payload()) == "long" {
			return long.ProcessTask(ctx, task)
		}
		return brief.ProcessTask(ctx, task)
	}))
	producer := r.produce()
	for i := range 8 { // the locks come with the tasks from then on
		r.record(producer, fmt.Sprint("brief", i))
		receive(t, ended)
	}
	r.record(producer, "long")
	if err := receive(t, ended); err != nil {
		t.Errorf("a lease for 20 s was lost: %v", err)
	}
}
