package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// Three servers work on the tasks of one key, and are stopped and started anew meanwhile. Handlers fail and panic, and
// some do not heed their time. Only wakes and asynq's own retries bring tasks back. Each task runs until it has
// succeeded or has no attempt left, no two at a time; and with StrictFIFO none begins before those that were enqueued
// before it have ended for good.
func TestTasksInOrderSurviveFailuresAndRestarts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(restartSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const tasks = 25
				random := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // a test that can be repeated
				name := []string{"FIFO", "strict FIFO"}[seed%2]
				strategy := inTurn[name]
				fails, attempts := map[int]int{}, map[int]int{}
				for n := range tasks {
					attempts[n] = random.IntN(4)
					fails[n] = max(random.IntN(8)-4, 0)
				}
				slow, aborted := map[int]bool{}, map[int]int{}
				for range 3 {
					slow[random.IntN(tasks)] = true
				}
				s := &script{}
				s.steps = func(ctx context.Context, n, run int) error {
					hold := time.Duration(5+7*n%20) * time.Millisecond
					if slow[n] && run == 1 {
						hold = 4 * time.Second
					}
					if n%6 == 5 {
						hold = 1500 * time.Millisecond
					}
					select {
					case <-time.After(hold):
					case <-ctx.Done():
						if !slow[n] {
							s.mu.Lock()
							aborted[n]++
							s.mu.Unlock()
							return ctx.Err()
						}
						<-time.After(3 * time.Second)
						return ctx.Err()
					}
					retried, _ := asynq.GetRetryCount(ctx)
					if retried < fails[n] {
						if n%2 == 0 {
							panic("a handler of the test")
						}
						return errors.New("it failed")
					}
					return nil
				}
				cfg := asynq.Config{
					TaskCheckInterval: 100 * time.Millisecond,
					ShutdownTimeout:   500 * time.Millisecond, Queues: map[string]int{"default": 4},
					RetryDelayFunc: func(n int, _ error, _ *asynq.Task) time.Duration { return time.Duration(n+1) * time.Second },
				}
				var servers []*process
				for range 3 {
					servers = append(servers, r.process(1+random.IntN(4), strategy, cfg, s.handle))
				}
				for n := range tasks {
					r.queued("k", n, 1, asynq.MaxRetry(attempts[n]), asynq.Timeout(3*time.Second))
					<-time.After(time.Duration(random.IntN(40)) * time.Millisecond)
				}
				left := func() int64 {
					return r.client.Exists(context.Background(), "railtoken:sequence:{k}", "railtoken:waiters:{k}").Val()
				}
				for range 6 {
					<-time.After(time.Duration(random.IntN(2500)) * time.Millisecond)
					victim := random.IntN(3)
					servers[victim].stop()
					servers[victim] = r.process(1+random.IntN(4), strategy, cfg, s.handle)
				}
				for began := time.Now(); left() > 0; <-pause(began) {
					if time.Since(began) > 5*time.Minute {
						r.Errorf("%s: the sequence is %v, parked %v, ran %v", name, r.client.ZRange(r.Context(), "railtoken:sequence:{k}", 0, -1).Val(),
							r.client.ZRange(r.Context(), "railtoken:waiters:{k}", 0, -1).Val(), s.saw())
						for n := range tasks {
							for _, q := range []string{"default"} {
								if info, err := r.inspect.GetTaskInfo(q, fmt.Sprint("k-", n)); err == nil {
									r.Logf("%d in %s: %v %v %s", n, q, info.State, info.NextProcessAt, info.LastErr)
								}
							}
						}
						return
					}
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.overlap > 0 {
					r.Errorf("%d met another one", s.overlap)
				}
				for n := range tasks {
					if s.ran[n] == 0 {
						r.Errorf("task %d never ran", n)
					}
				}
				if name == "strict FIFO" && !slices.IsSorted(s.begun) {
					r.Errorf("they ran in the order %v; fails %v, retries %v, slow %v", s.begun, fails, attempts, slow)
				}
			})
		})
	}
}
