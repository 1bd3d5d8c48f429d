package middleware_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// decision is a strategy of a user's.
type decision func(c middleware.Conflict) middleware.Decision

func (d decision) Decide(c middleware.Conflict) middleware.Decision { return d(c) }

func TestAStrategySeesTheTypeOfTheTask(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		types := make(chan string, 1)
		archive := decision(func(c middleware.Conflict) middleware.Decision {
			types <- c.Type
			return middleware.Decision{Outcome: middleware.Archive}
		})
		r.hold("order:1")
		r.serve(r.options(archive), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
		r.enqueue(payload{Key: "order:1"})
		if got := receive(r.T, types); got != "test" {
			r.Errorf("the strategy of a handler sees the type %q", got)
		}
	})
}

func TestAStrategyOfAProducerSeesTheTypeOfTheTask(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	r.hold("order:1")
	var got string
	archive := decision(func(c middleware.Conflict) middleware.Decision {
		got = c.Type
		return middleware.Decision{Outcome: middleware.Archive}
	})
	p := r.producer(func(*attach.ProducerOptions) {})
	_, err := p.EnqueueContext(t.Context(), taskFor(t, "order:1"), attach.WhenHeld(archive))
	if _, refused := errors.AsType[*middleware.ConflictError](err); !refused || got != "test" {
		t.Errorf("the strategy sees the type %q; the error is %v", got, err)
	}
}

func TestParkingWithoutADelayWaitsForTheLease(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		park := decision(func(middleware.Conflict) middleware.Decision {
			return middleware.Decision{Outcome: middleware.Park}
		})
		r.hold("order:1") // for 30 s, and renewed
		r.serve(r.options(park), asynq.Config{TaskCheckInterval: lookSeldom}, func(context.Context, *asynq.Task) error { return nil })
		r.enqueue(payload{Key: "order:1"})
		e := r.events.await(r, 1, ended(middleware.Park))[0]
		conflict, _ := errors.AsType[*middleware.ConflictError](e.Err)
		if conflict.RetryAfter < 10*time.Second {
			r.Errorf("the task tries again in %v", conflict.RetryAfter)
		}
		<-time.After(5 * time.Second)
		if n := r.events.count(parked); n != 1 {
			r.Errorf("the task was parked %d times within 5s, want once", n)
		}
	})
}

func TestAWaitThatIsOverParksTheTask(t *testing.T) {
	t.Parallel()
	for name, until := range map[string]func(now time.Time) time.Time{
		"never began": func(time.Time) time.Time { return time.Time{} },
		"has passed":  func(now time.Time) time.Time { return now.Add(-time.Hour) },
		"ends now":    func(now time.Time) time.Time { return now },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				waits := decision(func(c middleware.Conflict) middleware.Decision {
					return middleware.Decision{Outcome: middleware.WaitInSlot, WaitUntil: until(c.Now)}
				})
				r.hold("order:1") // for 30 s, and renewed
				r.serve(r.options(waits), asynq.Config{TaskCheckInterval: lookSeldom}, func(context.Context, *asynq.Task) error { return nil })
				r.enqueue(payload{Key: "order:1"})
				r.events.await(r, 1, parked)
				<-time.After(5 * time.Second)
				if parks, refusals := r.events.count(parked), r.events.count(ofKind(middleware.Refused)); parks != 1 || refusals != 1 {
					r.Errorf("within 5s, the task was parked %d times and refused %d times, want once each", parks, refusals)
				}
			})
		})
	}
}

func TestAnOutcomeThatIsNoneFailsTheRun(t *testing.T) {
	t.Parallel()
	for _, outcome := range []middleware.Outcome{middleware.NotEnqueued, -1, 99} {
		t.Run(outcome.String(), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				wrong := decision(func(middleware.Conflict) middleware.Decision { return middleware.Decision{Outcome: outcome} })
				r.hold("order:1")
				r.serve(r.options(wrong), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
				task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
				info := r.settled(task, asynq.TaskStateRetry)
				e := r.events.await(r, 1, ofKind(middleware.Ended))[0]
				if n := r.events.count(ofKind(middleware.Refused)); n != 1 || e.Key != "order:1" || !strings.Contains(e.Err.Error(), "cannot choose") {
					r.Errorf("%d refusals, ended with %+v", n, e)
				}
				if info.Retried != 1 || !strings.Contains(info.LastErr, "cannot choose") {
					r.Errorf("the task has %d failures, the last one %q", info.Retried, info.LastErr)
				}
			})
			r := newRig(t, redistest.Start(t).Client(t))
			r.hold("order:1")
			wrong := decision(func(middleware.Conflict) middleware.Decision { return middleware.Decision{Outcome: outcome} })
			p := r.producer(func(*attach.ProducerOptions) {})
			_, err := p.EnqueueContext(t.Context(), taskFor(t, "order:1"), attach.WhenHeld(wrong))
			if err == nil || !strings.Contains(err.Error(), "cannot choose") || r.size() != 0 {
				t.Errorf("a producer has enqueued %d tasks, and returned %v", r.size(), err)
			}
		})
	}
}
