package middleware_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

func TestALostReplyRunsNoTaskTwice(t *testing.T) {
	t.Parallel()
	const cuts, keys = 1000, 4
	server := redistest.Start(t)
	r := newRig(t, server.Client(t))
	proxy := redistest.NewProxy(t, server.Addr())
	var cut atomic.Int64
	proxy.Cut(func(request, _ []byte) bool {
		return redistest.IsScript(request) && rand.IntN(3) == 0 && cut.Add(1) <= cuts
	})
	locker, err := locking.NewSingle(server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close() })
	opts := r.options(middleware.Requeue{})
	opts.Locker = locker

	var runs sync.Map // by the ID of the task
	var ran, twice atomic.Int64
	r.serve(opts, asynq.Config{Concurrency: 16, Queues: map[string]int{"default": 1, "default:delayed": 1}}, func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		if _, again := runs.LoadOrStore(id, true); again {
			twice.Add(1)
		}
		ran.Add(1)
		return nil
	})
	var enqueued int64
	deadline := time.Now().Add(time.Minute)
	for cut.Load() < cuts && time.Now().Before(deadline) {
		for ; enqueued < ran.Load()+64; enqueued++ {
			r.enqueue(payload{Key: fmt.Sprint("order:", enqueued%keys)}, asynq.MaxRetry(int(enqueued%3)))
		}
		<-time.After(time.Millisecond)
	}
	for ran.Load() < enqueued && time.Now().Before(deadline) {
		<-time.After(time.Millisecond)
	}
	t.Logf("%d tasks, %d runs, %d cut replies, %d tasks run twice", enqueued, ran.Load(), min(cut.Load(), cuts), twice.Load())
	if n := twice.Load(); n > 0 || ran.Load() != enqueued || cut.Load() < cuts {
		t.Errorf("%d tasks were run %d times, %d of them twice, with %d replies cut", enqueued, ran.Load(), n, cut.Load())
	}
	info, err := r.inspect.GetQueueInfo("default")
	if err != nil || info.Archived != 0 || info.Failed != 0 {
		t.Errorf("archived %d, failed %d, %v", info.Archived, info.Failed, err)
	}
}
