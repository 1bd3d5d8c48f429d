package items_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/items"
	"github.com/railtoken/railtoken/worker"
)

func TestFailingItemsRunTheirTriesAlone(t *testing.T) {
	t.Parallel()
	var ran counts
	var mended atomic.Bool
	finished := make(chan items.Report, 2)
	bad := map[string]int{"3": 5, "4": 5, "17": 5, "39": 5}
	h := handler(func(_ context.Context, order string) error {
		ran.add(order)
		if bad[order] > 0 && !mended.Load() {
			return errBoom
		}
		return nil
	})
	h.Finish = func(_ context.Context, _ warehouseRun, r items.Report) error {
		finished <- r
		return r.Err()
	}
	s := newSite(t, h)
	run := ordersFrom(40)
	task := s.enqueue("run", run)
	info := s.await(task, asynq.TaskStateArchived)
	ran.wantAll(t, run, 1, bad)
	if info.Retried != 4 {
		t.Errorf("the task was retried %d times, want 4", info.Retried)
	}
	r := <-finished
	if r.Done != 36 || r.Failed != 4 || len(r.Items) != 4 {
		t.Fatalf("Finish has seen %+v", r)
	}
	for n, index := range []int{3, 4, 17, 39} {
		if got := r.Items[n]; got.Index != index || got.Tries != 5 || got.Err != "boom" {
			t.Errorf("Finish has seen %+v", got)
		}
	}

	mended.Store(true)
	n, err := items.Replay(t.Context(), s.producer.Queue(), task)
	if err != nil || n != 4 {
		t.Fatalf("the replay is of %d items, %v", n, err)
	}
	s.await(task, asynq.TaskStateCompleted)
	ran.wantAll(t, run, 1, map[string]int{"3": 6, "4": 6, "17": 6, "39": 6})
	s.wantNoResults(task)
	if _, err := items.Replay(t.Context(), s.producer.Queue(), task); err == nil {
		t.Error("a task that is all done was replayed")
	}
}

// wantNoResults fails the test if a task whose items are all done still has a result of one that was not.
func (s *site) wantNoResults(task delayqueue.Task) {
	s.Helper()
	for _, field := range s.client.HKeys(s.Context(), "asynq:{"+task.Queue+"}:t:"+task.ID).Val() {
		if field == "railtoken:items:noted" || strings.HasPrefix(field, "railtoken:item:") {
			s.Errorf("all items are done, and %s is left", field)
		}
	}
}

func TestAnItemThatSucceedsAtLastLeavesNoFailure(t *testing.T) {
	t.Parallel()
	var ran counts
	s := newSite(t, handler(func(_ context.Context, order string) error {
		if ran.add(order) == 1 && order == "1" {
			return errBoom
		}
		return nil
	}))
	task := s.enqueue("run", ordersFrom(3))
	s.await(task, asynq.TaskStateCompleted)
	s.wantNoResults(task)
}

func TestTheLastAttemptOfATaskIsThatOfItsItems(t *testing.T) {
	t.Parallel()
	var ran counts
	h := handler(func(_ context.Context, order string) error {
		ran.add(order)
		if order == "1" {
			return errBoom
		}
		return nil
	})
	s := newSite(t, h)
	run := ordersFrom(3)
	task := s.enqueue("run", run, asynq.MaxRetry(1))
	s.await(task, asynq.TaskStateArchived)
	ran.wantAll(t, run, 1, map[string]int{"1": 2})
}

func TestAnItemThatWaitsBurnsNoTriesOfOthers(t *testing.T) {
	t.Parallel()
	var ran counts
	h := handler(func(_ context.Context, order string) error {
		if ran.add(order) == 1 && order == "1" {
			return errBoom
		}
		return nil
	})
	s := newSite(t, h, func(c *worker.Config) {
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 0 }
	})
	release := s.hold(orderKey("0"))
	run := ordersFrom(2)
	task := s.enqueue("run", run)
	s.until("it is parked", func() bool {
		return s.report(task).Refused == 1 && s.info(task).State == asynq.TaskStateRetry
	})
	if n := ran.of("1"); n != 1 {
		t.Errorf("the failing item ran %d times before the task was retried", n)
	}
	release()
	info := s.await(task, asynq.TaskStateCompleted)
	ran.wantAll(t, run, 1, map[string]int{"1": 2})
	if info.Retried != 1 {
		t.Errorf("the task was retried %d times, want 1", info.Retried)
	}
}
