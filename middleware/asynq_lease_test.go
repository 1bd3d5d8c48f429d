package middleware_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// heldBeat returns a hook that holds the next heartbeat of an asynq server from a value of hold to one of resume.
func heldBeat(hold, resume <-chan struct{}) redistest.Hook {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if slices.ContainsFunc(cmd.Args(), func(arg any) bool {
			key, _ := arg.(string)
			return strings.HasPrefix(key, "asynq:servers:{")
		}) {
			select {
			case <-hold:
				<-resume
			default:
			}
		}
		return next(ctx, cmd)
	}
}

// asynq v0.26 notes runs by the IDs of their tasks. If it learns of the end of a run after the next run of the task has
// begun, it forgets the new run, extends its lease no longer, and recovers the task a minute later, which still runs.
func TestATaskWokenAtOnceKeepsItsLease(t *testing.T) {
	t.Parallel()
	const tasks = 16
	for _, slots := range []int{tasks, tasks + 1, 2 * tasks} {
		t.Run(fmt.Sprintf("%d slots", slots), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) { wakeAtOnce(r, tasks, slots) })
		})
	}
}

// wakeAtOnce has tasks parked and woken while asynq's heartbeater notes nothing, and then run for minutes.
func wakeAtOnce(r *rig, tasks, slots int) {
	hold, resume := make(chan struct{}), make(chan struct{})
	r.client.(*redis.Client).AddHook(heldBeat(hold, resume)) //nolint:forcetypeassert // it is that of a bubble
	var held []*locking.Lease
	for i := range tasks {
		held = append(held, r.hold(fmt.Sprint("order:", i)))
	}
	refused, park := make(chan struct{}, tasks), make(chan struct{})
	r.events.during = func(_ context.Context, e middleware.Event) {
		if e.Kind == middleware.Refused {
			refused <- struct{}{}
			<-park
		}
	}
	s := &script{steps: func(ctx context.Context, _, _ int) error {
		select {
		case <-time.After(3 * time.Minute):
		case <-ctx.Done(): // a run that should not be
		}
		return nil
	}}
	r.serve(r.options(parkAlways()), asynq.Config{Concurrency: slots, TaskCheckInterval: lookSeldom}, s.handle)
	for i := range tasks {
		r.enqueue(payload{Key: fmt.Sprint("order:", i), N: i}, asynq.MaxRetry(3))
	}
	for range tasks {
		receive(r.T, refused)
	}
	hold <- struct{}{} // asynq's heartbeater notes no run from now on
	close(park)
	r.events.await(r, tasks, parked)
	for _, lease := range held {
		r.giveBack(lease)
	}
	<-time.After(time.Second)
	resume <- struct{}{}
	<-time.After(5 * time.Minute)
	if got := s.saw(); len(got) != tasks {
		r.Errorf("%d of %d tasks have run: %v", len(got), tasks, got)
	}
}
