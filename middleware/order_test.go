package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/middleware"
)

// inTurn are strategies whose parked tasks only a wake brings back within the hour.
var inTurn = map[string]middleware.Requeue{
	"FIFO":        {Delay: time.Hour, Order: middleware.FIFO},
	"strict FIFO": {Delay: time.Hour, Order: middleware.StrictFIFO},
}

// script is what the runs of a task do, by its number N and how often it has run.
type script struct {
	mu      sync.Mutex
	steps   func(ctx context.Context, n, run int) error
	ran     map[int]int
	begun   []int // the numbers of the tasks, as their handlers began
	ended   []int // and as they returned
	inside  int
	overlap int
}

func (s *script) handle(ctx context.Context, task *asynq.Task) error {
	var p payload
	if err := json.Unmarshal(task.Payload(), &p); err != nil {
		return err
	}
	s.mu.Lock()
	if s.ran == nil {
		s.ran = map[int]int{}
	}
	s.ran[p.N]++
	run := s.ran[p.N]
	s.begun = append(s.begun, p.N)
	s.inside++
	if s.inside > 1 {
		s.overlap++
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inside--
		s.ended = append(s.ended, p.N)
	}()
	if s.steps == nil {
		return nil
	}
	return s.steps(ctx, p.N, run)
}

// saw returns the numbers of the tasks in the order in which their handlers began.
func (s *script) saw() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.begun)
}

// sees waits until the handlers have begun in this order.
func (s *script) sees(r *rig, most time.Duration, want ...int) {
	r.Helper()
	for began := time.Now(); ; <-pause(began) {
		if got := s.saw(); slices.Equal(got, want) {
			return
		} else if time.Since(began) > most || len(got) > len(want) {
			r.Errorf("they ran in the order %v within %v, want %v", got, time.Since(began), want)
			return
		}
	}
}

// queued adds tasks one after another, in order.
func (r *rig) queued(key string, first, n int, opts ...asynq.Option) {
	r.Helper()
	for i := range n {
		data, err := json.Marshal(payload{Key: key, N: first + i})
		if err != nil {
			r.Fatal(err)
		}
		opts := append([]asynq.Option{asynq.TaskID(fmt.Sprint(key, "-", first+i))}, opts...)
		if _, err := (*line.Engine)(r.queue).EnqueueInOrder(r.Context(), key, "test", data, nil, opts...); err != nil {
			r.Fatal(err)
		}
	}
}

// A handler that does not heed its context is still at work when asynq begins the task anew. The new run is refused by
// the old one, whose end wakes it.
func TestTheNextRunOfATaskThatOutlivesItsTimeoutIsWoken(t *testing.T) {
	t.Parallel()
	for name, strategy := range inTurn {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				s := &script{steps: func(_ context.Context, n, run int) error {
					if n == 1 && run == 1 {
						<-time.After(10 * time.Second)
					}
					return nil
				}}
				cfg := asynq.Config{Concurrency: 4, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second }}
				r.serve(r.options(strategy), cfg, s.handle)
				r.queued("order:1", 1, 1, asynq.MaxRetry(5), asynq.Timeout(2*time.Second))
				<-time.After(time.Second)
				r.queued("order:1", 2, 1, asynq.MaxRetry(5))
				s.sees(r, time.Minute, 1, 1, 2)
			})
		})
	}
}

func TestAFailureNeverSkipsItsRetryDelay(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		s := &script{steps: func(_ context.Context, n, run int) error {
			if n == 1 && run <= 3 {
				return errors.New("it failed")
			}
			return nil
		}}
		var mu sync.Mutex
		var began []time.Time
		strategy := middleware.Requeue{Delay: 3 * time.Second, Order: middleware.StrictFIFO}
		cfg := asynq.Config{
			Concurrency: 4, TaskCheckInterval: lookSeldom,
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 20 * time.Second },
		}
		lease := r.hold("order:1")
		r.serve(r.options(strategy), cfg, func(ctx context.Context, task *asynq.Task) error {
			mu.Lock()
			began = append(began, time.Now())
			mu.Unlock()
			return s.handle(ctx, task)
		})
		r.queued("order:1", 1, 2, asynq.MaxRetry(5))
		r.events.await(r, 2, parked)
		if err := lease.Release(r.Context()); err != nil { // its timer brings it back
			r.Fatal(err)
		}
		s.sees(r, time.Minute, 1)
		for i := range 4 {
			r.queued("order:1", 3+i, 1, asynq.MaxRetry(5))
			<-time.After(4 * time.Second)
		}
		s.sees(r, 3*time.Minute, 1, 1, 1, 1, 2, 3, 4, 5, 6)
		mu.Lock()
		defer mu.Unlock()
		for i := range 3 {
			if gap := began[i+1].Sub(began[i]); gap < 19*time.Second {
				r.Errorf("run %d came %v after the one before, want 20s", i+2, gap)
			}
		}
		<-time.After(5 * time.Second)
		r.leftNothing("order:1")
	})
}

// A failed task joins the sequence again, also when its producer has put it there.
func TestAnOrderedTaskThatFailsIsBehindThoseThatCameMeanwhile(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		order  middleware.Order
		want   []int
		served bool // the first may fail while its producer still gives it its position
	}{
		"FIFO":                {order: middleware.FIFO, want: []int{1, 2, 1}},
		"strict FIFO":         {order: middleware.StrictFIFO, want: []int{1, 1, 2}},
		"strict FIFO at once": {order: middleware.StrictFIFO, want: []int{1, 1, 2}, served: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				s := &script{steps: func(_ context.Context, n, run int) error {
					if n == 1 && run == 1 {
						return errors.New("it failed")
					}
					<-time.After(10 * time.Second)
					return nil
				}}
				cfg := asynq.Config{Concurrency: 4, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 5 * time.Second }}
				serve := func() {
					r.serve(r.options(middleware.Requeue{Delay: time.Hour, Order: tt.order}), cfg, s.handle)
				}
				if tt.served {
					serve()
				}
				r.queued("order:1", 1, 2, asynq.MaxRetry(5))
				if !tt.served {
					serve()
				}
				s.sees(r, time.Minute, tt.want...)
				<-time.After(20 * time.Second)
				r.leftNothing("order:1")
			})
		})
	}
}

// leftNothing checks that nothing is kept of a key whose tasks are all done.
func (r *rig) leftNothing(key string) {
	r.Helper()
	for _, name := range []string{"railtoken:waiters:{" + key + "}", "railtoken:sequence:{" + key + "}", "railtoken:parked"} {
		if left := r.client.ZRange(r.Context(), name, 0, -1).Val(); len(left) > 0 {
			r.Errorf("%s still holds %v", name, left)
		}
	}
}

func TestInOrderAKeyMayBeNamedTwice(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		s := &script{}
		opts := r.options(inTurn["FIFO"])
		opts.Key = middleware.FixedKey("order:1", "order:1")
		r.serve(opts, asynq.Config{}, s.handle)
		r.queued("order:1", 1, 2, asynq.MaxRetry(3))
		s.sees(r, 5*time.Second, 1, 2)
	})
}
