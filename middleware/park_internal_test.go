package middleware

import (
	"log/slog"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware/internal/standby"
)

func TestLookingAgainKeepsTheCountsOfWakes(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	locker, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	queue, err := delayqueue.New(client, delayqueue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer queue.Close()
	budget := &slotBudget{Waiting: 4, Slots: 8}
	opts := Options{Locker: locker, Logger: slog.New(slog.DiscardHandler)}
	r := &run{lock: &lock{Options: opts, Server: &taskrun.Server{Queue: queue}, SlotBudget: budget, notifyFor: taskrun.NotifyFor}, task: asynq.NewTask("test", nil), id: line.Task{Queue: "default", ID: "1"}, keys: []string{"k"}}
	for range 5 {
		budget.standby.Parked("k", 3, 1)
		r.lookAgain(t.Context(), "k", line.Parked{Task: r.id, Timer: time.Second})
	}
	budget.standby.Parked("k", 3, 1)
	if n := budget.standby.Released("k", standby.Release{Notify: true}, func() bool { return true }); n != 2 {
		t.Errorf("a release wakes %d, want 2", n)
	}
}

// A task that is parked on the key is woken first, so there is nothing to decide about the next one.
func TestAFetchParksBehindAnotherTask(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		strategy Strategy
		want     colocated.Wait
	}{
		{Requeue{}, colocated.Wait{Behind: 1, After: time.Second, Most: 55 * time.Second}},
		{Requeue{Standby: 9}, colocated.Wait{Behind: 1, After: time.Second, Most: 55 * time.Second}},
		{Requeue{Standby: -1}, colocated.Wait{Behind: 1, After: time.Second, Most: 55 * time.Second}},
		{Requeue{Delay: time.Minute}, colocated.Wait{Behind: 1, After: time.Minute, Most: time.Minute}},
		{Requeue{Order: FIFO}, colocated.Wait{After: time.Second, Most: 55 * time.Second, Order: "fifo"}},
		{Requeue{Order: StrictFIFO, Limits: delayqueue.Limits{Conflicts: 100}}, colocated.Wait{Order: "strict"}},
		{Requeue{Queue: "siding"}, colocated.Wait{}},
		{Requeue{Limits: delayqueue.Limits{Conflicts: 100}}, colocated.Wait{}},
		{Wait{}.Then(Requeue{}), colocated.Wait{}},
		{FailFast{}, colocated.Wait{}},
	} {
		l := &lock{Options: Options{Strategy: tt.strategy}}
		if requeue, ok := RequeueOf(tt.strategy); ok {
			l.order = requeue.Order
		}
		if got := l.Wait(); got != tt.want {
			t.Errorf("%+v: %+v, want %+v", tt.strategy, got, tt.want)
		}
	}
}
