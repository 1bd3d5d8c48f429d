package items_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/items"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

func TestATaskThatCannotBeDividedIsArchived(t *testing.T) {
	t.Parallel()
	var ran atomic.Int32
	h := handler(func(context.Context, string) error { ran.Add(1); return nil })
	h.Keys = func(r warehouseRun) []string { return []string{middleware.Key("order", r.Shift)} }
	s := newSite(t, h)
	orders := func(ids ...string) warehouseRun { return warehouseRun{Shift: "7", Orders: ids} }
	for name, tt := range map[string]struct {
		payload any
		want    []string
	}{
		"no items":        {warehouseRun{Shift: "early"}, []string{"Split returned 0 of them", "1 to 10000"}},
		"too many":        {ordersFrom(10_001), []string{"Split returned 10001 of them", "1 to 10000 (MaxItems)"}},
		"no key":          {warehouseRun{Shift: "early", Orders: []string{"1", ""}}, []string{"item 1", "the key is empty"}},
		"key of the run":  {orders("6", "7"), []string{"item 1", `"order:7"`, "for the whole run"}},
		"key too long":    {orders(strings.Repeat("9", 2000)), []string{"item 0", "MaxKeySize"}},
		"no key of a run": {warehouseRun{Orders: []string{"1"}}, []string{"the key is empty"}},
		"other payload":   {[]int{1}, []string{"the payload cannot be decoded"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			info := s.await(s.enqueue("run", tt.payload), asynq.TaskStateArchived)
			wantText(t, info.LastErr, append(tt.want, `"run"`)...)
		})
	}
	t.Cleanup(func() {
		if ran.Load() != 0 {
			t.Errorf("%d items of such tasks ran", ran.Load())
		}
	})
}

func TestItemsThatChangeAfterADeployRunNoMore(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]struct {
		of   func(h *items.Handler[warehouseRun, string])
		want []string
	}{
		"number": {func(h *items.Handler[warehouseRun, string]) {
			h.Split = func(r warehouseRun) []string { return r.Orders[1:] }
		}, []string{"Split returned 39 of them", "when the task first ran 40"}},
		"keys": {func(h *items.Handler[warehouseRun, string]) {
			h.ItemKeys = func(order string) []string { return []string{"o:" + order} }
		}, []string{"Split returned 40 of them", "when the task first ran 40"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ran counts
			before := handler(func(_ context.Context, order string) error { ran.add(order); return nil })
			s := newSite(t, before)
			release := s.hold(orderKey("7"))
			run := ordersFrom(40)
			task := s.enqueue("run", run)
			s.await(task, asynq.TaskStateRetry)
			if err := s.worker.Shutdown(); err != nil {
				t.Fatal(err)
			}
			after := before
			change.of(&after)
			s.client.Del(t.Context(), "railtoken:lock:{order:7}")
			_ = release
			inspector := asynq.NewInspectorFromRedisClient(s.client)
			if err := inspector.RunTask(task.Queue, task.ID); err != nil {
				t.Fatal(err)
			}
			s.worker = s.startWorker(after)
			info := s.await(task, asynq.TaskStateArchived)
			wantText(t, info.LastErr, append(change.want, items.ErrSplit.Error())...)
			ran.wantAll(t, run, 1, map[string]int{"7": 0})
			if r := s.report(task); r.Done != 39 || r.Refused != 1 {
				t.Errorf("its progress is %+v", r)
			}

			if err := s.worker.Shutdown(); err != nil { // the code that it began with comes back
				t.Fatal(err)
			}
			s.worker = s.startWorker(before)
			if n, err := items.Replay(t.Context(), s.producer.Queue(), task); err != nil || n != 1 {
				t.Fatalf("the replay is of %d items, %v", n, err)
			}
			s.await(task, asynq.TaskStateCompleted)
			ran.wantAll(t, run, 1, nil)
		})
	}
}

func TestNewReturnsEveryFaultAtOnce(t *testing.T) {
	t.Parallel()
	w, err := worker.New(worker.Config{Redis: worker.Redis{Addr: "127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Shutdown() })
	err = worker.HandleItems(w, "run", items.Handler[string, string]{
		Policy: 7, Parallel: -1, Sequential: true, Strategy: middleware.Requeue{Order: middleware.FIFO},
	})
	if err == nil {
		t.Fatal("there is no error")
	}
	wantText(t, err.Error(), `handler of "run"`, "Split is not set", "ItemKeys is not set", "Run is not set",
		"Policy is Policy(7)", "Parallel is -1", "the order FIFO")
	if _, err := items.New(nil, items.Handler[string, string]{}); err == nil {
		t.Error("New takes no locks")
	} else {
		wantText(t, err.Error(), "attach.New", "Split is not set")
	}
	if err := worker.HandleItems(w, "", items.Handler[string, string]{}); err == nil {
		t.Error("a handler without a type was registered")
	}
}
