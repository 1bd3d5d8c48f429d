package attach_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/testing/childtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/internal/testing/testserver"
)

// endsOn has a child of the tests run a task on the Redis of an address, and never return from the callback for its end.
const endsOn = "RAILTOKEN_TEST_ENDS_ON"

func hearNothing(addr string) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	a, err := attach.New(client, asynq.Config{Concurrency: 2, LogLevel: asynq.FatalLevel}, attach.Options{
		OnArchived: func(_ context.Context, info *asynq.TaskInfo, reason attach.EndReason) error {
			fmt.Println(info.ID, reason.Cause)
			select {}
		},
	})
	if err == nil {
		err = asynq.NewServerFromRedisClient(a.Client(), a.Config()).Start(a.Lock(byPayload)(asynq.HandlerFunc(fails)))
	}
	if err != nil {
		fmt.Println(err)
	}
	select {}
}

func TestTheEndsOfAKilledProcessAreToldByAnother(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := rigOn(t, server)
	child := childtest.Start(t, endsOn+"="+server.Addr())
	_, err := r.tasks.Enqueue(asynq.NewTask("skip", []byte("k")), asynq.TaskID("task"))
	ok(t, err)
	if said := child.Says(t); said != "task skip_retry" {
		t.Fatalf("the child says %s", said)
	}
	h := make(hears, 10)
	a := r.attach(asynq.Config{Concurrency: 2}, h.options(attach.Options{}))
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(fails)))
	select {
	case got := <-h:
		t.Errorf("heard of %s, whose callback runs elsewhere", got)
	case <-time.After(2 * ends.Unclaimed): // the child keeps its mark
	}
	child.Signal(t, os.Kill)
	killed := time.Now()
	r.hears(h, "task archived skip_retry")
	if took := time.Since(killed); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	r.told(h)
}

func TestAShutdownWaitsForCallbacks(t *testing.T) {
	t.Parallel()
	testserver.LeaveToLong(t)
	for _, stuck := range []bool{false, true} {
		t.Run(fmt.Sprint("stuck ", stuck), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			began, returned := make(chan struct{}, 1), atomic.Bool{}
			a, err := attach.New(r.client, asynq.Config{Concurrency: 2, LogLevel: asynq.FatalLevel}, attach.Options{
				OnCompleted: func(ctx context.Context, _ *asynq.TaskInfo) error {
					began <- struct{}{}
					if stuck {
						<-ctx.Done()
						return ctx.Err()
					}
					<-time.After(2 * time.Second)
					returned.Store(true)
					return nil
				},
				Logger: slog.New(slog.DiscardHandler),
			})
			ok(t, err)
			s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
			ok(t, s.Start(a.Lock(byPayload)(asynq.HandlerFunc(fails))))
			r.enqueue("k", asynq.TaskID("task"))
			redistest.Receive(t, began, limit)
			closing := time.Now()
			s.Shutdown()
			ok(t, a.Close())
			if took := time.Since(closing); took > 9*time.Second || stuck && took < 5*time.Second {
				t.Errorf("the shutdown took %v", took)
			}
			if !stuck && !returned.Load() {
				t.Error("it did not wait for the callback")
			}
			h := make(hears, 10)
			next := r.attach(asynq.Config{Concurrency: 2}, h.options(attach.Options{}))
			r.serve(next.Client(), next.Config(), next.Lock(byPayload)(asynq.HandlerFunc(fails)))
			if stuck {
				r.hears(h, "task completed ")
			}
			r.told(h)
		})
	}
}

// No end is told twice, and callbacks do not use the slots of tasks.
func TestEndsOfABurstAreToldOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const tasks = 2000
	told := make(chan string, tasks+10)
	var running, most atomic.Int64
	opts := attach.Options{OnCompleted: func(_ context.Context, info *asynq.TaskInfo) error {
		n := running.Add(1)
		defer running.Add(-1)
		for was := most.Load(); n > was; was = most.Load() {
			most.CompareAndSwap(was, n)
		}
		<-time.After(time.Millisecond) // as a call elsewhere
		told <- info.ID
		return nil
	}}
	for range 2 { // of two processes
		a := r.attach(asynq.Config{Concurrency: 8}, opts)
		r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(fails)))
	}
	for i := range tasks {
		r.enqueue(fmt.Sprint(i%50), asynq.TaskID(fmt.Sprint(i)))
	}
	seen := map[string]bool{}
	for range tasks {
		id := redistest.Receive(t, told, limit)
		if seen[id] {
			t.Errorf("%s was told twice", id)
		}
		seen[id] = true
	}
	r.told(nil)
	if len(told) != 0 || most.Load() > 32 {
		t.Errorf("%d were told once more; %d callbacks at a time", len(told), most.Load())
	}
}
