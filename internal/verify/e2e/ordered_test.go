package e2e_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// TestOrderedTasksOfAKeyRunInTheOrderInWhichTheyWereEnqueued has one producer enqueue tasks in sequence, in two queues, for a worker with
// 32 slots. In the second run every tenth handler fails once.
func TestOrderedTasksOfAKeyRunInTheOrderInWhichTheyWereEnqueued(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		order middleware.Order
		fails bool
	}{
		"FIFO":                       {middleware.FIFO, false},
		"strict FIFO, with failures": {middleware.StrictFIFO, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const keys, tasks = 50, sequenced
			server := startShared(t)
			var mu sync.Mutex
			done := make([][]int, keys)
			failed := map[int]bool{}
			count, failures := 0, 0
			finished := make(chan struct{})
			cfg := worker.Config{
				Redis: at(server), Concurrency: 32, Queues: map[string]int{"audit": 1, "allocate": 1},
				Strategy: middleware.Requeue{Order: tt.order}, DelayedTaskCheckInterval: 20 * time.Millisecond,
				RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
			}
			w, producer := newWorker(t, cfg, func(_ context.Context, o order) error {
				n, err := strconv.Atoi(o.Task)
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				if tt.fails && n%10 == 0 && !failed[n] {
					failed[n] = true
					failures++
					return errors.New("once")
				}
				done[n%keys] = append(done[n%keys], n)
				count++
				if count == tasks {
					close(finished)
				}
				return nil
			})
			if err := w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			for n := range tasks {
				key := "order:" + strconv.Itoa(n%keys)
				queue := []string{"audit", "allocate"}[n/keys%2]
				if _, err := producer.EnqueueInOrder(t.Context(), key, "work", order{Order: key, Task: strconv.Itoa(n)}, asynq.Queue(queue)); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-finished:
			case <-time.After(3 * limit):
				t.Fatalf("%d of %d tasks are done", count, tasks)
			}
			inversions := 0
			for key, order := range done {
				for i := 1; i < len(order); i++ {
					if order[i] < order[i-1] {
						inversions++
						t.Errorf("of order:%d, task %d ran after task %d, which was enqueued later; they ran in the order %v",
							key, order[i], order[i-1], order[max(i-3, 0):min(i+3, len(order))])
					}
				}
			}
			if inversions > 0 || tt.fails && failures < tasks/10 {
				t.Errorf("%d inversions, want none; %d handlers failed", inversions, failures)
			}
		})
	}
}
