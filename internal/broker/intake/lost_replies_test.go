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

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

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
		broker.Options{}, func(ctx context.Context, _ *asynq.Task) error {
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

// An acknowledgement that was repeated arrives late, after its fetch was recalled: it must neither end another run of its
// task nor take a task that no server hears of.
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
	s := serve(t, client, asynq.Config{Concurrency: 1}, broker.Options{}, func(ctx context.Context, _ *asynq.Task) error {
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
	s.Shutdown()
	enqueue(t, admin, "default", 1)
	held.Deliver()
	if n := admin.LLen(ctx, "asynq:{default}:pending").Val(); n != 1 {
		t.Errorf("%d tasks are pending, want the one that came after the shutdown", n)
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
	}, broker.Options{}, func(ctx context.Context, _ *asynq.Task) error {
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
	serve(t, client, asynq.Config{Concurrency: 1}, broker.Options{}, func(context.Context, *asynq.Task) error { return nil })
	eventually(t, "both are done", func() bool { return admin.Get(t.Context(), "asynq:{default}:processed").Val() == "2" })
	if n := len(admin.Keys(t.Context(), "asynq:{default}:t:*").Val()); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
}

// readOnlyError is the refusal of a replica.
type readOnlyError struct{}

func (readOnlyError) Error() string { return "READONLY You can't write against a read only replica." }
func (readOnlyError) RedisError()   {}
