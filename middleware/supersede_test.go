package middleware_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware"
)

// Of those that wait to supersede one group the newest stays. Whoever watches the others learns that they have ended.
func TestATaskThatIsSupersededWhileItWaitsIsToldOf(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		lease := r.hold("order:1")
		r.serve(r.options(middleware.Supersede{}), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
		older := r.enqueue(payload{Key: "order:1"})
		r.events.await(r, 1, parked)
		time.Sleep(time.Second) // virtual
		newer := r.enqueue(payload{Key: "order:1"})
		superseded := func(e middleware.Event) bool {
			by, ok := errors.AsType[*middleware.CancelledError](e.Err)
			return e.Kind == middleware.Ended && ok && by.Next == newer
		}
		if ended := r.events.await(r, 1, superseded)[0]; ended.Task != older || ended.Type != "test" || ended.Key != "order:1" {
			r.Errorf("its end is told of as %+v", ended)
		}
		r.settled(older, asynq.TaskStateArchived)
		r.giveBack(lease)
		r.gone(newer)
	})
}
