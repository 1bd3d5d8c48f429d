package attach_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

func TestADroppedTaskHasEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := make(hears, 10)
	a := r.attach(asynq.Config{Concurrency: 2}, h.options(attach.Options{}))
	defer r.held(a)()
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(fails)))
	r.enqueue("k", asynq.TaskID("task"), asynq.Retention(time.Hour))
	r.until("it waits", func() bool { return r.client.ZCard(t.Context(), "railtoken:waiters:{k}").Val() == 1 })
	waited := make(chan error, 1)
	go func() {
		_, err := a.Producer(nil).Wait(t.Context(), &asynq.TaskInfo{ID: "task", Queue: "default"})
		waited <- err
	}()
	r.until("it is waited for", func() bool {
		return r.client.HExists(t.Context(), "asynq:{default}:t:task", "railtoken:awaited").Val()
	})
	other, err := delayqueue.New(r.client, delayqueue.Options{}) // as the command does
	ok(t, err)
	defer other.Close()
	ok(t, other.Inspector().Drop(t.Context(), delayqueue.Task{Queue: "default", ID: "task"}))
	if got := r.hears(h, "task active by_hand"); got.info.Type != "test" {
		t.Errorf("heard of %+v", got.info)
	}
	if err := redistest.Receive(t, waited, limit); !errors.Is(err, attach.ErrDiscarded) {
		t.Error(err)
	}
	r.told(h)
}

func TestACancelledTaskHasEnded(t *testing.T) {
	t.Parallel()
	for _, outcome := range []middleware.Outcome{middleware.Archive, middleware.Discard} {
		for _, runs := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, runs %v", outcome, runs), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				h := make(hears, 10)
				a := r.attach(asynq.Config{Concurrency: 2}, h.options(attach.Options{}))
				began := make(chan struct{}, 1)
				r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
					began <- struct{}{}
					<-ctx.Done()
					return ctx.Err()
				})))
				later := asynq.ProcessIn(time.Hour)
				if runs {
					later = asynq.ProcessIn(0)
				}
				r.enqueue("k", asynq.TaskID("task"), asynq.Retention(time.Hour), later)
				if runs {
					redistest.Receive(t, began, limit)
				}
				waited := make(chan error, 1)
				go func() {
					_, err := a.Producer(nil).Wait(t.Context(), &asynq.TaskInfo{ID: "task", Queue: "default"})
					waited <- err
				}()
				r.until("it is waited for", func() bool {
					return r.client.HExists(t.Context(), "asynq:{default}:t:task", "railtoken:awaited").Val()
				})
				r.until("a server hears", func() bool { return r.client.Exists(t.Context(), ends.HeardKey("default")).Val() == 1 })
				_, err := (*line.Engine)(a.Queue()).Cancel(t.Context(), line.Task{Queue: "default", ID: "task"},
					line.Cancellation{Discard: outcome == middleware.Discard, By: "ann", Why: "customer cancelled"})
				ok(t, err)
				want, target := "task archived cancelled", attach.ErrCancelled
				if outcome == middleware.Discard {
					want, target = "task active cancelled", attach.ErrDiscarded
				}
				if got := r.hears(h, want); got.reason.By != "ann" || got.reason.Why != "customer cancelled" {
					t.Errorf("cancelled by %q because of %q", got.reason.By, got.reason.Why)
				}
				if err := redistest.Receive(t, waited, limit); !errors.Is(err, target) {
					t.Error(err)
				}
				r.told(h)
			})
		}
	}
}
