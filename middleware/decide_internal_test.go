package middleware

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
)

// deciding is a function as a strategy.
type deciding func(c Conflict) Decision

func (f deciding) Decide(c Conflict) Decision { return f(c) }

// refusedRun returns a run without a Queue on a server whose budget has room for one.
func refusedRun(s Strategy) *run {
	return &run{
		task: asynq.NewTask("test", nil), keys: []string{"k"},
		lock: &lock{
			Options: Options{Strategy: s, Logger: slog.New(slog.DiscardHandler)}, Server: &taskrun.Server{}, SlotBudget: &slotBudget{Waiting: 1},
		},
	}
}

func TestAStrategyIsToldTheDeadline(t *testing.T) {
	t.Parallel()
	want := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), want)
	defer cancel()
	var got time.Time
	refusedRun(deciding(func(c Conflict) Decision {
		got = c.Deadline
		return Decision{Outcome: Archive}
	})).decide(ctx, &locking.HeldError{Key: "k"})
	if !got.Equal(want) {
		t.Errorf("the deadline is %v, want %v", got, want)
	}
}

func TestAStrategyIsToldWhetherTheTaskMayWait(t *testing.T) {
	t.Parallel()
	stopping := make(chan struct{})
	close(stopping)
	for name, tt := range map[string]struct {
		change func(r *run)
		want   bool
	}{
		"room":              {func(*run) {}, true},
		"no room":           {func(r *run) { r.SlotBudget.take() }, false},
		"waits already":     {func(r *run) { r.waiting = r.SlotBudget.take() }, true},
		"stopping":          {func(r *run) { r.Stopping = stopping }, false},
		"stopping, waiting": {func(r *run) { r.waiting, r.Stopping = r.SlotBudget.take(), stopping }, false},
	} {
		var got bool
		r := refusedRun(deciding(func(c Conflict) Decision {
			got = c.MayWait
			return Decision{Outcome: Archive}
		}))
		tt.change(r)
		r.decide(t.Context(), &locking.HeldError{Key: "k"})
		if got != tt.want {
			t.Errorf("%s: may wait %v, want %v", name, got, tt.want)
		}
	}
}

func TestAStrategyIsAskedAgainWhenAnotherTaskWasFaster(t *testing.T) {
	t.Parallel()
	var may []bool
	var r *run
	r = refusedRun(deciding(func(c Conflict) Decision {
		may = append(may, c.MayWait)
		if !c.MayWait {
			return Decision{Outcome: Discard}
		}
		r.SlotBudget.take() // the other task does
		return Decision{Outcome: WaitInSlot, WaitUntil: c.Now.Add(time.Minute)}
	}))
	d := r.decide(t.Context(), &locking.HeldError{Key: "k"})
	if len(may) != 2 || !may[0] || may[1] || d.Outcome != Discard || r.waiting {
		t.Errorf("asked with %v, and then the task is %v", may, d.Outcome)
	}
}

func TestAWaitThatMustNotBeIsARetryWithoutAQueue(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *run, d *Decision){
		"no room":    func(r *run, _ *Decision) { r.SlotBudget.take() },
		"until now":  func(_ *run, d *Decision) { d.WaitUntil = d.WaitUntil.Add(-time.Minute) },
		"no end":     func(_ *run, d *Decision) { d.WaitUntil = time.Time{} },
		"for a time": nil,
	} {
		var r *run
		r = refusedRun(deciding(func(c Conflict) Decision {
			d := Decision{Outcome: WaitInSlot, WaitUntil: c.Now.Add(time.Minute)}
			if change != nil {
				change(r, &d)
			}
			return d
		}))
		want := Retry
		if change == nil {
			want = WaitInSlot
		}
		if d := r.decide(t.Context(), &locking.HeldError{Key: "k"}); d.Outcome != want {
			t.Errorf("%s: %v, want %v", name, d.Outcome, want)
		}
	}
}

func TestAWaitCountsItsRefusals(t *testing.T) {
	t.Parallel()
	var seen []Conflict
	r := refusedRun(deciding(func(c Conflict) Decision {
		seen = append(seen, c)
		return Decision{Outcome: WaitInSlot, WaitUntil: c.Now.Add(time.Minute)}
	}))
	for range 3 {
		r.decide(t.Context(), &locking.HeldError{Key: "k"})
	}
	for i, c := range seen {
		if c.Attempt != i+1 || !c.FirstAt.Equal(seen[0].Now) || c.Waited != c.Now.Sub(c.FirstAt) {
			t.Errorf("refusal %d: %+v", i+1, c)
		}
	}
	if len(seen) != 3 || r.SlotBudget.InUse() != 1 {
		t.Errorf("%d refusals take %d shares of the budget, want 3 and 1", len(seen), r.SlotBudget.InUse())
	}
}

func TestNoTaskSupersedesInOrder(t *testing.T) {
	t.Parallel()
	for order, want := range map[Order]bool{BestEffort: true, FIFO: false, StrictFIFO: false} {
		r := refusedRun(Supersede{})
		r.order = order
		if d := r.decide(t.Context(), &locking.HeldError{Key: "k"}); (d.Supersede != nil) != want {
			t.Errorf("%v: %+v", order, d)
		}
	}
}

func TestAPauseIsAroundItsDelay(t *testing.T) {
	t.Parallel()
	for delay, around := range map[time.Duration]time.Duration{0: 10 * time.Millisecond, -1: 10 * time.Millisecond, time.Second: time.Second} {
		seen := map[time.Duration]bool{}
		for range 100 {
			got := jittered(delay)
			seen[got] = true
			if got < around/2 || got >= around*3/2 {
				t.Fatalf("%v for a delay of %v", got, delay)
			}
		}
		if len(seen) == 1 {
			t.Errorf("all pauses for a delay of %v are the same", delay)
		}
	}
}
