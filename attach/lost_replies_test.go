package attach_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// foundInPayload is byPayloads for the server, too, before a task runs.
var foundInPayload middleware.KeyFunc = taskrun.KnownEarly(func(_ context.Context, task *asynq.Task) ([]string, error) {
	return byPayloads(context.Background(), task)
})

// One reply in twenty is cut, of any call: those of asynq itself, of locks, of fetches and of acknowledgements. Two tasks
// share each key, or many do and wake one another. Each of them runs once, in the order that its key keeps, and none is stranded until asynq
// recovers it.
func TestTasksOutliveLostReplies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		recorded bool
		keys     int
		order    middleware.Order
		key      middleware.KeyFunc
	}{
		"recorded": {true, lostReplies / 2, 0, byPayloads}, "not recorded": {false, lostReplies / 2, 0, byPayloads},
		"busy keys": {true, 20, 0, byPayloads}, "found": {false, lostReplies / 2, 0, foundInPayload}, "busy keys, found": {false, 20, 0, foundInPayload},
		"FIFO": {true, 20, middleware.FIFO, byPayloads}, "StrictFIFO": {true, 20, middleware.StrictFIFO, byPayloads},
		"FIFO, found": {false, 20, middleware.FIFO, foundInPayload}, "StrictFIFO, found": {false, 20, middleware.StrictFIFO, foundInPayload},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			const tasks = lostReplies
			producer := r.produce()
			for i := range tasks {
				switch key := fmt.Sprintf("k%d", i*tt.keys/tasks); {
				case tt.order != middleware.BestEffort && tt.recorded:
					_, err := producer.EnqueueInOrder(t.Context(), key, asynq.NewTask("test", []byte(key)), asynq.TaskID(fmt.Sprintf("%05d", i)))
					ok(t, err)
				case tt.recorded:
					r.record(producer, key)
				default:
					r.enqueue(key)
				}
			}
			proxy := redistest.NewProxy(t, r.client.Options().Addr)
			var replies, cuts atomic.Int64
			proxy.Cut(func(_, _ []byte) bool {
				if replies.Add(1)%20 == 0 {
					cuts.Add(1)
					return true
				}
				return false
			})
			client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 32})
			t.Cleanup(func() { _ = client.Close() })
			a, err := attach.New(client, asynq.Config{
				Concurrency: 16, LogLevel: asynq.FatalLevel, DelayedTaskCheckInterval: 100 * time.Millisecond,
			}, attach.Options{Strategy: middleware.Requeue{Order: tt.order}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = a.Close() })
			var mu sync.Mutex
			var done atomic.Int64
			runs, at, last := map[string]int{}, map[string]bool{}, map[string]string{}
			began := time.Now()
			r.serve(a.Client(), a.Config(), a.Lock(tt.key)(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				if n, _ := asynq.GetRetryCount(ctx); n > 0 {
					t.Errorf("%s was stranded until asynq recovered it", id)
				}
				key := string(task.Payload())
				mu.Lock()
				defer mu.Unlock()
				if at[key] {
					t.Errorf("two at work on %s", key)
				}
				if tt.recorded && tt.order != middleware.BestEffort && id < last[key] { // the others arrive as they are first tried
					t.Errorf("%s runs after %s", id, last[key])
				}
				at[key], last[key] = true, id
				mu.Unlock()
				<-time.After(100 * time.Microsecond) // the work
				mu.Lock()
				at[key] = false
				runs[id]++
				if runs[id] > 1 {
					t.Errorf("%s runs again", id)
				}
				done.Store(int64(len(runs)))
				return nil
			})))
			r.goesOn(&done, func() bool { return done.Load() == tasks })
			if cuts.Load() == 0 {
				t.Error("no reply was cut")
			}
			t.Logf("%d replies of %d were cut; all tasks were done after %v", cuts.Load(), replies.Load(), time.Since(began).Round(time.Millisecond))
			r.wantNoLocks()
		})
	}
}
