package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
)

// latest returns the headers of a payload of which only the latest is to run.
func latest(number int, id string) map[string]string {
	return map[string]string{line.LatestHeader: fmt.Sprintf("railtoken:latest:{default}:record %016d %s", number, id)}
}

// Whether a run whose task counts from noon yields to a task.
func TestWhoYieldsToWhom(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		strategy Strategy
		order    Order
		group    string
		since    time.Time
		yields   bool
		number   int // of the task's payload, if only the latest is to run; that of the run is 5
	}{
		"supersedes none":                            {Requeue{}, BestEffort, "g", noon.Add(time.Second), true, 0},
		"supersedes none, the task is older":         {Requeue{}, BestEffort, "g", noon.Add(-time.Hour), true, 0},
		"another group":                              {Requeue{}, BestEffort, "h", noon.Add(time.Second), false, 0},
		"in order":                                   {Requeue{Order: FIFO}, FIFO, "g", noon.Add(time.Second), false, 0},
		"supersedes its group":                       {Supersede{}, BestEffort, "g", noon.Add(time.Microsecond), true, 0},
		"supersedes its group, at the same time":     {Supersede{}, BestEffort, "g", noon, false, 0},
		"supersedes its group, the task is older":    {Supersede{}, BestEffort, "g", noon.Add(-time.Microsecond), false, 0},
		"supersedes its group, only enqueued":        {Supersede{}, BestEffort, "g", time.Time{}, true, 0},
		"supersedes another group":                   {&Supersede{Group: "h"}, BestEffort, "g", noon.Add(-time.Hour), true, 0},
		"supersedes its group after a while":         {Wait{}.Then(Supersede{}), BestEffort, "g", noon.Add(-time.Second), false, 0},
		"supersedes its group, the payload is newer": {Supersede{}, BestEffort, "g", noon.Add(-time.Hour), true, 6},
		"supersedes its group, the payload is older": {Supersede{}, BestEffort, "g", noon.Add(time.Second), false, 4},
	} {
		l := &lock{Options: Options{Strategy: tt.strategy}, order: tt.order, group: taskrun.Group{Name: "g"}}
		r := &run{lock: l, task: asynq.NewTaskWithHeaders("test", nil, latest(5, "run")), id: line.Task{ID: "run"}, since: noon}
		s := holdings.Supersession{Group: tt.group, Since: tt.since, ID: "task"}
		if tt.number > 0 {
			s.Headers = latest(tt.number, "task")
		}
		if got := r.yieldsTo(s); got != tt.yields {
			t.Errorf("%s: yields %v, want %v", name, got, tt.yields)
		}
	}
}

// What a handler has done counts once it has returned, although its Grace may end at that very moment. Of two tasks the shorter Grace counts.
func TestTheGraceEndsWithTheHandler(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	for name, returns := range map[string]func(s *superseding, lease *locking.Lease){
		"the task": func(s *superseding, _ *locking.Lease) { s.handlerReturned() }, "its item": (*superseding).itemReturned, "none": nil,
	} {
		lease := leaseOn(t, server, name)
		_, end := context.WithCancelCause(t.Context())
		r := &run{lock: &lock{Options: Options{Strategy: Requeue{}, Logger: slog.New(slog.DiscardHandler)}, Server: &taskrun.Server{}}, task: asynq.NewTask("test", nil)}
		r.own.end, r.superseding = end, &r.own
		s := holdings.Supersession{Group: "test", Grace: time.Hour}
		r.Supersede(s, lease)
		if returns == nil {
			s.Grace = time.Millisecond
			r.Supersede(s, lease)
			<-lease.Done()
			if loss, ok := errors.AsType[*locking.LostError](lease.Err()); !ok || loss.Reason != locking.LossDeposed {
				t.Errorf("%s: the lease has %v", name, lease.Err())
			}
			continue
		}
		returns(r.superseding, lease)
		r.depose(supersededBy(s), s, lease) // as its timer does
		if lease.Err() != nil {
			t.Errorf("%s: the lease has %v", name, lease.Err())
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// What is noted when a run begins may take as long as Redis is away. Without its locks the run does not begin.
func TestARunWithoutItsLocksDoesNotBegin(t *testing.T) {
	t.Parallel()
	lease := leaseOn(t, miniredis.RunT(t), "k")
	r := &run{lock: &lock{Options: Options{Logger: slog.New(slog.DiscardHandler)}}, task: asynq.NewTask("test", nil), lease: lease, left: 1}
	asked := 0
	ask := func() error {
		return r.ask(t.Context(), func(context.Context) error {
			asked++
			return nil
		})
	}
	if err := ask(); err != nil || asked != 1 {
		t.Errorf("with its locks: %v", err)
	}
	locks.Depose(lease, "ann", "it hangs")
	_, away := errors.AsType[*unavailableError](ask())
	if _, comesBack := waits(ask()); !away || !comesBack {
		t.Error("without its locks it begins")
	}
}

func TestOnlyAHandlerOfTheGroupIsToldOfItsSuccessor(t *testing.T) {
	t.Parallel()
	lease := leaseOn(t, miniredis.RunT(t), "k")
	ctx, end := context.WithCancelCause(t.Context())
	r := &run{lock: &lock{Options: Options{Strategy: Requeue{}, Logger: slog.New(slog.DiscardHandler)}, Server: &taskrun.Server{}}, task: asynq.NewTask("test", nil)}
	r.own.end, r.superseding = end, &r.own
	r.Supersede(holdings.Supersession{Group: "another"}, lease)
	if ctx.Err() != nil || len(r.own.graces) != 0 {
		t.Errorf("a task of another group: %v, %d graces", context.Cause(ctx), len(r.own.graces))
	}
	began := time.Now()
	r.Supersede(holdings.Supersession{Group: "test", Queue: "default", ID: "next"}, lease)
	cause, ok := errors.AsType[*CancelledError](context.Cause(ctx))
	if !ok || cause.Next.ID != "next" {
		t.Errorf("the handler is told %v", context.Cause(ctx))
	}
	g, ok := r.own.graces[lease]
	if !ok || g.at.Before(began.Add(10*time.Second)) || g.at.After(time.Now().Add(10*time.Second)) {
		t.Errorf("its grace ends %v after it was told, want 10 s", g.at.Sub(began))
	}
	r.Supersede(holdings.Supersession{Group: "test", Queue: "default", ID: "patient", Grace: time.Hour}, lease)
	if r.own.graces[lease] != g {
		t.Error("a task that would wait for longer prolongs the grace")
	}
	r.own.itemReturned(lease)
	if g.timer != nil && g.timer.Stop() {
		t.Error("the grace of a handler that has returned goes on")
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestATaskThatMayParkNeedsAQueue(t *testing.T) {
	t.Parallel()
	for _, s := range []Strategy{Requeue{}, Supersede{}, Wait{}, Wait{}.Then(Supersede{})} {
		if !needsQueue(s) {
			t.Errorf("%+v needs no queue", s)
		}
	}
	for _, s := range []Strategy{FailFast{}, Wait{}.Then(FailFast{})} {
		if needsQueue(s) {
			t.Errorf("%+v needs a queue", s)
		}
	}
}

// The release of a key that the task has not used fails, so that somebody may wait for it. Without a queue no task does.
func TestARunWithoutAQueueWakesNobody(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	lease := leaseOn(t, server, "k")
	server.SetError("ERR it fails")
	r := &run{lock: &lock{Options: Options{Logger: slog.New(slog.DiscardHandler)}, Server: &taskrun.Server{}}, task: asynq.NewTask("test", nil)}
	r.giveUp(t.Context(), lease)
	if !lease.ShouldNotify() {
		t.Error("nobody may wait for the key")
	}
}

// leaseOn returns a lease of a key on a server.
func leaseOn(t *testing.T, server *miniredis.Miniredis, key string) *locking.Lease {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	single, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = single.Close() })
	lease, err := single.Acquire(t.Context(), []string{key}, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}
