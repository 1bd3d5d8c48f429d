package middleware_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/testserver"
	"github.com/railtoken/railtoken/middleware"
)

// crash takes the next task of a queue and leaves it as a worker that is killed: active, with asynq's lease and, once
// it works, the lock.
func (r *rig) crash(queue, key string, works bool) delayqueue.Task {
	r.Helper()
	prefix := "asynq:{" + queue + "}:"
	id := r.client.RPop(r.Context(), prefix+"pending").Val()
	task := delayqueue.Task{Queue: queue, ID: id}
	_, err := r.client.Pipelined(r.Context(), func(pipe redis.Pipeliner) error {
		pipe.LPush(r.Context(), prefix+"active", id)
		pipe.ZAdd(r.Context(), prefix+"lease", redis.Z{Score: float64(time.Now().Add(30 * time.Second).Unix()), Member: id})
		pipe.HSet(r.Context(), prefix+"t:"+id, "state", "active")
		if works {
			pipe.Set(r.Context(), "railtoken:lock:{"+key+"}", "killed", 30*time.Second)
		}
		return nil
	})
	if err == nil {
		_, err = (*line.Engine)(r.queue).Join(r.Context(), line.Task(task), key, line.JoinOptions{Begins: true, Works: works})
	}
	if err != nil {
		r.Fatal(err)
	}
	return task
}

// asynq brings a task back one or two minutes after its worker has died, and then makes it wait for its retry. In order
// the others would wait with it.
func TestACrashInOrderDelaysItsKeyByTheLeases(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		works   bool
		retries int
		want    []int
		retried int
	}{
		"at work":                      {true, 3, []int{1, 2, 3, 4}, 1},
		"before it":                    {false, 3, []int{1, 2, 3, 4}, 0},
		"at work, on its last attempt": {true, 0, []int{2, 3, 4}, 0},
		"before it, on its last":       {false, 0, []int{1, 2, 3, 4}, 0},
	} {
		for _, order := range []middleware.Order{middleware.FIFO, middleware.StrictFIFO} {
			t.Run(fmt.Sprint(order, "/", name), func(t *testing.T) {
				t.Parallel()
				bubble(t, func(r *rig) {
					r.queued("order:1", 1, 1, asynq.MaxRetry(tt.retries), asynq.Retention(time.Hour))
					head := r.crash("default", "order:1", tt.works)
					crashed := time.Now()
					r.queued("order:1", 2, 3, asynq.MaxRetry(3))
					s := &script{}
					r.serve(r.options(middleware.Requeue{Order: order}), asynq.Config{Concurrency: 4, TaskCheckInterval: 100 * time.Millisecond}, s.handle)
					s.sees(r, 37*time.Second, tt.want...)
					r.Logf("all have run %v after the crash", time.Since(crashed))
					state := asynq.TaskStateCompleted
					if len(tt.want) == 3 {
						state = asynq.TaskStateArchived
					}
					info := r.settled(head, state)
					expired := info.LastErr == asynq.ErrLeaseExpired.Error()
					if info.Retried != tt.retried || expired != tt.works {
						r.Errorf("asynq says of it: %d retries, %q", info.Retried, info.LastErr)
					}
					if q, err := r.inspect.GetQueueInfo("default"); err != nil || (q.Failed == 1) != tt.works {
						r.Errorf("%+v, %v; want it counted as failed: %v", q, err, tt.works)
					}
				})
			})
		}
	}
}

// A worker dies with one task at work and the next fetched.
func TestTheNextOfADeadWorkerFollowsAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.queued("order:1", 1, 2, asynq.MaxRetry(0))
		r.crash("default", "order:1", true)
		r.crash("default", "order:1", false)
		crashed := time.Now()
		r.queued("order:1", 3, 2, asynq.MaxRetry(0))
		s := &script{}
		r.serve(r.options(middleware.Requeue{Order: middleware.FIFO}), asynq.Config{
			Concurrency: 4, TaskCheckInterval: 100 * time.Millisecond,
		}, s.handle)
		s.sees(r, 37*time.Second, 2, 3, 4)
		r.Logf("all have run %v after the crash", time.Since(crashed))
	})
}

// A worker that does not extend asynq's lease, because it cannot reach that Redis, may still be at work: its lock
// tells.
func TestATaskWhoseLockIsHeldIsNotBroughtBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.queued("order:1", 1, 1, asynq.MaxRetry(3))
		head := r.crash("default", "order:1", true)
		r.client.Persist(r.Context(), "railtoken:lock:{order:1}")
		r.queued("order:1", 2, 2, asynq.MaxRetry(3))
		s := &script{}
		r.serve(r.options(middleware.Requeue{Order: middleware.FIFO}), asynq.Config{Concurrency: 4, TaskCheckInterval: 100 * time.Millisecond}, s.handle)
		<-time.After(55 * time.Second) // asynq's own recoverer looks after a minute
		if info := r.info(head); info.State != asynq.TaskStateActive || len(s.saw()) > 0 {
			r.Errorf("it is %v, and %v ran", info.State, s.saw())
		}
		r.client.Del(r.Context(), "railtoken:lock:{order:1}")
		s.sees(r, 70*time.Second, 1, 2, 3)
	})
}

// Thousands wait in order for a key that is held for long: they must not ask for it all the time.
func TestACrowdInOrderLooksAsRarelyAsAnyOther(t *testing.T) {
	t.Parallel()
	testserver.LeaveToLong(t)
	// Their timers are random, so each kind is looked at four times.
	const tasks, rounds = crowdTasks, 4
	looks := map[string]int{}
	for name, strategy := range map[string]middleware.Requeue{"best effort": parkAlways(), "FIFO": {Order: middleware.FIFO}} {
		for range rounds {
			bubble(t, func(r *rig) {
				counted := make(chan struct{})
				s := &script{steps: func(_ context.Context, n, _ int) error {
					if n == 1 {
						<-counted
					}
					return nil
				}}
				r.serve(r.options(strategy), asynq.Config{Concurrency: 8, TaskCheckInterval: 250 * time.Millisecond}, s.handle)
				r.queued("order:1", 1, tasks, asynq.MaxRetry(3))
				r.events.await(r, tasks-1, parked)
				<-time.After(time.Minute)
				looks[name] += len(r.events.await(r, tasks-1, parked)) - (tasks - 1)
				close(counted)
				for began := time.Now(); time.Since(began) < 4*time.Minute; <-pause(began) {
					if len(s.saw()) >= tasks {
						break
					}
				}
				<-time.After(90 * time.Second) // a second run would come by now
				if got := s.saw(); len(got) != tasks {
					r.Errorf("%s: %d of %d have run: %v", name, len(got), tasks, got)
					for _, e := range r.events.await(r, 0, func(e middleware.Event) bool {
						return e.Kind == middleware.Lost || e.Kind == middleware.Unavailable || e.Cause == middleware.ByTimer
					}) {
						r.Logf("%+v", e)
					}
				}
			})
		}
	}
	t.Logf("looks in vain within a minute, %d times: %v", rounds, looks)
	if looks["FIFO"] > 2*looks["best effort"] || looks["FIFO"] > rounds*tasks/2 {
		t.Errorf("within a minute %d looked in vain, want as few as without an order (%d)", looks["FIFO"], looks["best effort"])
	}
}
