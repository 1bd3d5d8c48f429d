package items_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/items"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/worker"
)

func TestEachItemRunsOnceUnderItsOwnLease(t *testing.T) {
	t.Parallel()
	var ran counts
	var mu sync.Mutex
	tokens, indexes := map[string]int64{}, map[int]bool{}
	finished := make(chan items.Report, 1)
	h := handler(func(ctx context.Context, order string) error {
		ran.add(order)
		lease, ok := locking.FromContext(ctx)
		if !ok {
			return fmt.Errorf("there is no lease")
		}
		if keys := lease.Keys(); len(keys) != 1 || keys[0] != orderKey(order) {
			return fmt.Errorf("the lease is for %v", keys)
		}
		token, err := lease.FenceOf(ctx, orderKey(order))
		mu.Lock()
		defer mu.Unlock()
		tokens[order], indexes[items.Index(ctx)] = token, true
		return err
	})
	h.Finish = func(_ context.Context, r warehouseRun, report items.Report) error {
		if r.Shift != "early" {
			return fmt.Errorf("the shift is %q", r.Shift)
		}
		finished <- report
		return nil
	}
	s := newSite(t, h)
	run := ordersFrom(200)
	task := s.enqueue("run", run)
	info := s.await(task, asynq.TaskStateCompleted)
	ran.wantAll(t, run, 1, nil)
	if r := <-finished; r.Done != 200 || r.Total != 200 || len(r.Items) != 0 || r.Err() != nil {
		t.Errorf("the report is %+v", r)
	}
	if got := s.report(task); got.Done != 200 {
		t.Errorf("seen from outside: %+v", got)
	}
	if len(info.Result) != 0 {
		t.Errorf("a task that is all done has the result %s", info.Result)
	}
	if len(tokens) != 200 || len(indexes) != 200 || indexes[-1] {
		t.Errorf("%d tokens and %d indexes", len(tokens), len(indexes))
	}
	for order, token := range tokens {
		if token <= 0 {
			t.Errorf("order %s had the token %d", order, token)
		}
	}
}

// exact has the tests hold the times that are promised for a machine with nothing else to do: "make items" sets it.
var exact = flag.Bool("exact", false, "hold a key for 10 s, and check the times after it is released")

func TestAHeldKeyHoldsUpNoOtherItem(t *testing.T) {
	if !*exact {
		t.Parallel()
	}
	var ran counts
	var last atomic.Int64
	h := handler(func(_ context.Context, order string) error {
		ran.add(order)
		if order == "7" {
			last.Store(time.Now().UnixNano())
		}
		return nil
	})
	s := newSite(t, h, func(c *worker.Config) { c.Concurrency = 1 })
	rounds, longest := 1, time.Duration(0)
	if *exact {
		rounds = 9
	}
	var waits []time.Duration
	for round := range rounds {
		release := s.hold(orderKey("7"))
		run := ordersFrom(40)
		began := time.Now()
		task := s.enqueue("run", run)
		s.await(task, asynq.TaskStateRetry)
		longest = max(longest, time.Since(began))
		if r := s.report(task); r.Done != 39 || r.Refused != 1 || r.Items[0].Index != 7 || r.Items[0].Key != orderKey("7") {
			t.Errorf("the report is %+v", r)
		}
		other := s.enqueue("audit", "other") // needs the only slot
		s.await(other, asynq.TaskStateCompleted)
		if *exact && round == 0 {
			<-time.After(10*time.Second - time.Since(began))
		}
		released := time.Now()
		release()
		info := s.await(task, asynq.TaskStateCompleted)
		ran.wantAll(t, run, round+1, nil)
		if info.Retried != 0 {
			t.Errorf("waiting has used up %d retries", info.Retried)
		}
		waits = append(waits, time.Unix(0, last.Load()).Sub(released))
	}
	t.Logf("39 items were done after %v at most; the last one ran %v after the release",
		longest.Round(time.Millisecond), waits)
	slices.Sort(waits)
	if *exact && (longest > time.Second || waits[rounds/2] > 10*time.Millisecond) {
		t.Errorf("39 items took %v, want 1 s; the last one ran %v after the release (median), want 10 ms",
			longest, waits[rounds/2])
	}
	if waiting := s.client.Exists(t.Context(), "railtoken:parked").Val(); waiting != 0 {
		t.Error("the index of waiting tasks is still there")
	}
}

func TestGoOnReportsWhatWasRefused(t *testing.T) {
	t.Parallel()
	var ran counts
	finished := make(chan items.Report, 2)
	h := handler(func(_ context.Context, order string) error { ran.add(order); return nil })
	h.Policy = items.GoOn
	h.Finish = func(_ context.Context, _ warehouseRun, r items.Report) error {
		finished <- r
		return r.Err()
	}
	s := newSite(t, h)
	release := s.hold(orderKey("7"))
	run := ordersFrom(40)
	began := time.Now()
	task := s.enqueue("run", run)
	info := s.await(task, asynq.TaskStateArchived)
	took := time.Since(began)
	t.Logf("the run ended after %v", took.Round(time.Millisecond))
	if *exact && took > time.Second {
		t.Errorf("the run ended after %v, want 1 s", took)
	}
	ran.wantAll(t, run, 1, map[string]int{"7": 0})
	r, err := items.ParseReport(info.Result)
	if err != nil {
		t.Fatal(err)
	}
	if r.Done != 39 || r.Refused != 1 || len(r.Items) != 1 {
		t.Fatalf("the result is %s", info.Result)
	}
	refused := r.Items[0]
	if refused.Index != 7 || refused.Key != orderKey("7") || refused.Holder != "audit" ||
		refused.RetryAfter <= 0 || refused.RetryAfter > 20*time.Second {
		t.Errorf("the result has %+v", refused)
	}
	wantText(t, info.LastErr, "39 of 40 done", "1 refused", "order:7", "audit")
	if (<-finished).Refused != 1 {
		t.Error("Finish has not seen the refused item")
	}

	release()
	n, err := items.Replay(t.Context(), s.producer.Queue(), task)
	if err != nil || n != 1 {
		t.Fatalf("the replay is of %d items, %v", n, err)
	}
	s.await(task, asynq.TaskStateCompleted)
	ran.wantAll(t, run, 1, nil)
}

func TestWholeRunsAllItemsOrNone(t *testing.T) {
	t.Parallel()
	var ran counts
	h := handler(func(ctx context.Context, order string) error {
		ran.add(order)
		lease, _ := locking.FromContext(ctx)
		_, err := lease.FenceOf(ctx, orderKey(order))
		return err
	})
	h.Policy = items.Whole
	s := newSite(t, h)
	release := s.hold(orderKey("7"))
	run := ordersFrom(40)
	task := s.enqueue("run", run)
	s.await(task, asynq.TaskStateRetry)
	ran.wantAll(t, run, 0, nil)
	release()
	s.await(task, asynq.TaskStateCompleted)
	ran.wantAll(t, run, 1, nil)
}

func TestSequentialItemsStopAtTheFirstFailure(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var order []string
	fails := map[string]int{"2": 1}
	h := handler(func(_ context.Context, o string) error {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, o)
		if fails[o] > 0 {
			fails[o]--
			return errBoom
		}
		return nil
	})
	h.Sequential = true
	s := newSite(t, h)
	release := s.hold(orderKey("4"))
	task := s.enqueue("run", ordersFrom(6))
	s.until("it waits for 4", func() bool {
		return s.report(task).Done == 4 && s.info(task).State == asynq.TaskStateRetry
	})
	release()
	s.await(task, asynq.TaskStateCompleted)
	if got := fmt.Sprint(order); got != "[0 1 2 2 3 4 5]" {
		t.Errorf("they ran in the order %s", got)
	}
}

func TestItemsWithAKeyInCommonNeverMeet(t *testing.T) {
	t.Parallel()
	for _, policy := range []items.Policy{items.FinishLater, items.Whole} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			var inside, most atomic.Int32
			var ran counts
			h := handler(func(_ context.Context, order string) error {
				ran.add(order)
				most.Store(max(most.Load(), inside.Add(1)))
				<-time.After(time.Millisecond)
				inside.Add(-1)
				return nil
			})
			h.Policy = policy
			h.ItemKeys = func(string) []string { return []string{"order:same"} }
			s := newSite(t, h)
			run := ordersFrom(30)
			s.await(s.enqueue("run", run), asynq.TaskStateCompleted)
			ran.wantAll(t, run, 1, nil)
			if most.Load() != 1 {
				t.Errorf("%d items with the same key ran at the same time", most.Load())
			}
		})
	}
}

func TestKeysAreHeldForTheWholeRunAndReleasedWhenItWaits(t *testing.T) {
	t.Parallel()
	var s *site
	h := handler(func(ctx context.Context, _ string) error {
		if held := s.client.Exists(ctx, "railtoken:lock:{run:early}").Val(); held != 1 {
			return fmt.Errorf("the key of the run is not held")
		}
		return nil
	})
	h.Keys = func(r warehouseRun) []string { return []string{"run:" + r.Shift} }
	h.Finish = func(ctx context.Context, _ warehouseRun, r items.Report) error {
		if lease, ok := locking.FromContext(ctx); !ok || lease.Keys()[0] != "run:early" {
			return fmt.Errorf("Finish has no lease of the key")
		}
		return r.Err()
	}
	s = newSite(t, h)
	release := s.hold(orderKey("7"))
	task := s.enqueue("run", ordersFrom(20))
	s.await(task, asynq.TaskStateRetry)
	s.hold("run:early")()
	release()
	s.await(task, asynq.TaskStateCompleted)
}

func TestSkippedItemsAreNotTriedAgain(t *testing.T) {
	t.Parallel()
	var ran counts
	h := handler(func(_ context.Context, order string) error {
		ran.add(order)
		switch {
		case order == "1":
			return fmt.Errorf("order 1: %w", items.Skip(errBoom))
		case order == "2" && ran.of("2") == 1:
			return items.RetryAfter(nil, 0)
		case order == "3":
			return items.Skip(nil)
		}
		return nil
	})
	s := newSite(t, h)
	run := ordersFrom(4)
	task := s.enqueue("run", run)
	s.await(task, asynq.TaskStateCompleted)
	ran.wantAll(t, run, 1, map[string]int{"2": 2})
	r := s.report(task)
	if r.Done != 2 || r.Skipped != 2 || r.Items[0].Err != "boom" || r.Items[1].Err != "" {
		t.Errorf("the report is %+v", r)
	}
}

func TestRetryAfterSetsTheDelayOfTheRetry(t *testing.T) {
	t.Parallel()
	var ran counts
	var first, second atomic.Int64
	h := handler(func(_ context.Context, order string) error {
		if ran.add(order) == 1 {
			first.Store(time.Now().UnixNano())
			return items.RetryAfter(errBoom, 2*time.Second)
		}
		second.Store(time.Now().UnixNano())
		return nil
	})
	s := newSite(t, h, func(c *worker.Config) {
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
	})
	s.await(s.enqueue("run", ordersFrom(1)), asynq.TaskStateCompleted)
	if gap := time.Duration(second.Load() - first.Load()); gap < 2*time.Second {
		t.Errorf("it was tried again after %v", gap)
	}
}

func TestAPanicOfAnItemIsItsFailure(t *testing.T) {
	t.Parallel()
	var ran counts
	h := handler(func(_ context.Context, order string) error {
		if ran.add(order) == 1 && order == "1" {
			panic("out of stock")
		}
		return nil
	})
	s := newSite(t, h)
	run := ordersFrom(3)
	task := s.enqueue("run", run)
	s.await(task, asynq.TaskStateCompleted)
	ran.wantAll(t, run, 1, map[string]int{"1": 2})
	if !s.log.has("an item panicked") || !s.log.has("out of stock") {
		t.Error("the log does not tell of the panic")
	}
}

func TestProgressIsSeenWhileItRuns(t *testing.T) {
	t.Parallel()
	step := make(chan struct{})
	h := handler(func(context.Context, string) error {
		<-step
		return nil
	})
	h.Parallel = 1
	s := newSite(t, h)
	task := s.enqueue("run", ordersFrom(3))
	for range 2 {
		step <- struct{}{}
		<-time.After(15 * time.Millisecond) // results may be saved 10 ms late
	}
	s.until("one item is done", func() bool { return s.report(task).Done >= 1 })
	if r := s.report(task); r.Total != 3 || r.Done+r.Pending != 3 {
		t.Errorf("while it runs the report is %+v", r)
	}
	step <- struct{}{}
	s.await(task, asynq.TaskStateCompleted)
	if _, err := items.Of(t.Context(), s.producer.Queue(), delayqueue.Task{Queue: "default", ID: "none"}); err == nil {
		t.Error("there is a report of a task that asynq does not know")
	}
}
