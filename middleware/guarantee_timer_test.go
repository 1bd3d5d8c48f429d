package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/middleware"
)

// A task that looked for itself only after its age is at the bound would be archived later than that says.
func TestATimerIsNoLongerThanTheLimitOnAge(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.client.Set(r.Context(), "railtoken:lock:{order:1}", "foreign", 0) // another program's, without an end
		strategy := parkAlways()
		strategy.Delay, strategy.Limits = 90*time.Hour, delayqueue.Limits{Age: 24 * time.Hour}
		serve := func() (*rig, *asynq.Server) {
			w := newRig(r.T, r.client)
			opts := w.options(strategy)
			opts.DisableReports = true // they would fill the hours
			server := w.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
			return w, server
		}
		w, server := serve()
		task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
		info := r.settled(task, asynq.TaskStateRetry)
		if left := time.Until(info.NextProcessAt); left > strategy.Limits.Age+2*time.Second {
			r.Errorf("it looks again in %v, want %v at most", left, strategy.Limits.Age)
		}
		server.Shutdown()
		_ = w.attached.Close() // its looks for owed wakes would fill them, too,
		_ = w.locker.Close()   // and the pings of its subscription
		<-time.After(25 * time.Hour)
		serve()
		conflict, err := middleware.ParseConflict(r.settled(task, asynq.TaskStateArchived).Result)
		if err != nil || conflict.Limit != delayqueue.AgeLimit {
			r.Errorf("it ended with %+v, %v; want the bound on age", conflict, err)
		}
	})
}
