package middleware_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// soon is when the next task of a key has run after whatever became of the first, in virtual time.
const soon = 2 * time.Second

func TestATaskWithoutALeaseHoldsUpNoKey(t *testing.T) {
	t.Parallel()
	for _, works := range []bool{false, true} {
		inEachOrder(t, func(r *rig, strategy middleware.Requeue) {
			r.queued("order:1", 1, 1, asynq.MaxRetry(3))
			head := r.crash("default", "order:1", works)
			r.client.ZRem(r.Context(), "asynq:{default}:lease", head.ID)
			r.client.Del(r.Context(), "railtoken:lock:{order:1}")
			r.queued("order:1", 2, 2, asynq.MaxRetry(3))
			s := &script{}
			r.serve(r.options(strategy), asynq.Config{Concurrency: 4}, s.handle)
			s.sees(r, soon, 1, 2, 3)
		})
	}
}

// afterLeaving calls do once, when a task has left its sequence and has not released its key.
type afterLeaving struct {
	sequence string
	once     *sync.Once
	do       func()
}

func (afterLeaving) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a afterLeaving) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		args := cmd.Args() // evalsha, hash, 2 keys: the sequence and the waiters; how many to name, and the leaver
		if strings.HasPrefix(cmd.Name(), "eval") && len(args) > 6 && fmt.Sprint(args[2]) == "2" && args[3] == a.sequence && args[6] != "" && err == nil {
			a.once.Do(a.do)
		}
		return err
	}
}

func (afterLeaving) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestATaskThatArrivesAsTheLastLeavesIsWoken(t *testing.T) {
	t.Parallel()
	inEachOrder(t, func(r *rig, strategy middleware.Requeue) {
		r.client.AddHook(afterLeaving{"railtoken:sequence:{order:1}", new(sync.Once), func() {
			r.queued("order:1", 2, 1)
			r.events.await(r, 1, parked)
		}})
		s, opts := &script{}, r.options(strategy)
		opts.Locker = struct{ locking.Locker }{r.locker} // whose keys no acknowledgement releases
		r.serve(opts, asynq.Config{Concurrency: 4}, s.handle)
		r.queued("order:1", 1, 1)
		s.sees(r, soon, 1, 2)
	})
}

func TestAReusedIDHoldsUpNoKey(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(r *rig, t delayqueue.Task){
		"scheduled": func(r *rig, t delayqueue.Task) {
			r.enqueue(payload{Key: "order:1", N: 2}, asynq.TaskID(t.ID), asynq.ProcessIn(time.Hour))
		},
		"scheduled with another key": func(r *rig, t delayqueue.Task) {
			r.enqueue(payload{Key: "order:2", N: 2}, asynq.TaskID(t.ID), asynq.ProcessIn(time.Hour))
		},
		"at work on another key": func(r *rig, t delayqueue.Task) {
			r.enqueue(payload{Key: "order:2", N: 2}, asynq.TaskID(t.ID))
			r.events.await(r, 2, func(e middleware.Event) bool { return e.Kind == middleware.Acquired })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inEachOrder(t, func(r *rig, strategy middleware.Requeue) {
				release := make(chan struct{})
				s := &script{steps: func(ctx context.Context, n, _ int) error {
					switch n {
					case 1:
						<-release
					case 2:
						<-ctx.Done()
					}
					return nil
				}}
				r.serve(r.options(strategy), asynq.Config{Concurrency: 4}, s.handle)
				r.queued("order:1", 1, 4)
				r.events.await(r, 3, parked)
				second := delayqueue.Task{Queue: "default", ID: "order:1-2"}
				if err := r.inspect.DeleteTask(second.Queue, second.ID); err != nil {
					r.Fatal(err)
				}
				want := []int{1, 3, 4}
				again(r, second)
				if len(s.saw()) == 2 {
					want = []int{1, 2, 3, 4}
				}
				close(release)
				s.sees(r, soon, want...)
			})
		})
	}
}
