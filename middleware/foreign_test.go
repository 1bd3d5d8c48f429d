package middleware_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/middleware"
)

// serveForeign runs a server of an asynq whose scripts of some kinds are not known until the end of the test, and
// returns its log.
func (r *rig) serveForeign(opts options, cfg asynq.Config, handler asynq.HandlerFunc, changed ...broker.Kind) (*asynq.Server, *lines) {
	r.Helper()
	log := new(lines)
	opts.Logger, opts.AllowUnknownAsynq = slog.New(slog.NewTextHandler(log, nil)), true
	a := r.attach(opts, cfg)
	other := asynqtest.OtherVersion{UniversalClient: a.Client(), Changed: func(sum string, keys []string) bool {
		kind, _ := broker.KindOf(sum, keys)
		return slices.Contains(changed, kind)
	}}
	return r.serveOn(other, a.Lock(opts.Key)(handler)), log
}

func TestTasksRunWithAnUnknownAsynq(t *testing.T) {
	t.Parallel()
	changes := map[string][]broker.Kind{"the fetch": {broker.Fetch}, "the acknowledgements": {broker.Ack}, "both": {broker.Fetch, broker.Ack}}
	for name, strategy := range map[string]middleware.Requeue{
		"parked": parkAlways(), "in order": inTurn["FIFO"], "elsewhere": {Queue: "slow"},
	} {
		for what, changed := range changes {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(r *rig) {
					const tasks = 6
					u := newUsage()
					_, log := r.serveForeign(r.options(strategy), asynq.Config{Concurrency: 5, TaskCheckInterval: lookSeldom}, func(ctx context.Context, task *asynq.Task) error {
						u.work(ctx, task, 300*time.Millisecond)
						return nil
					}, changed...)
					for i := range tasks {
						r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(i%3))
					}
					r.until(5*time.Minute, "all have run", func() bool { return u.finished() == tasks })
					if len(u.overlap) > 0 {
						r.Errorf("two tasks at a time had %v", u.overlap)
					}
					if info, err := r.inspect.GetQueueInfo("default"); err != nil || info.Archived > 0 || info.FailedTotal > 0 {
						r.Errorf("%+v, %v; want nothing archived or failed", info, err)
					}
					if n := log.count("level=WARN"); n != 1 || log.count("use that version of asynq") != 1 {
						r.Errorf("%d warnings, want the one of asynq's version:\n%s", n, log.text.String())
					}
				})
			})
		}
	}
}

func TestALastAttemptWaitsInItsSlotWithAnUnknownAsynq(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts     []asynq.Option
		strategy middleware.Strategy
		waits    time.Duration
		bound    delayqueue.Limit
	}{
		"for its time": {[]asynq.Option{asynq.Timeout(time.Minute)}, parkAlways(), 59 * time.Second, delayqueue.NoLimit},
		"to its bound": {nil, middleware.Requeue{Limits: delayqueue.Limits{Age: 20 * time.Second}}, 20 * time.Second, delayqueue.AgeLimit},
		"after a wait": {[]asynq.Option{asynq.Timeout(time.Minute)}, middleware.Wait{}, 59 * time.Second, delayqueue.NoLimit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				r.hold("order:1")
				r.serveForeign(r.options(tt.strategy), asynq.Config{TaskCheckInterval: lookSeldom}, func(context.Context, *asynq.Task) error { return nil }, broker.Fetch)
				began := time.Now()
				task := r.enqueue(payload{Key: "order:1"}, append(tt.opts, asynq.MaxRetry(0))...)
				<-time.After(tt.waits - 2*time.Second)
				if info := r.info(task); info.State != asynq.TaskStateActive {
					r.Fatalf("it is %v after %v: %s", info.State, time.Since(began), info.LastErr)
				}
				conflict, err := middleware.ParseConflict(r.settled(task, asynq.TaskStateArchived).Result)
				if err != nil || conflict.Key != "order:1" || conflict.Holder.Label != "the-holder" || conflict.Limit != tt.bound {
					r.Fatalf("the reason is %+v, %v", conflict, err)
				}
				if took := conflict.Waited; took < tt.waits-time.Second || took > tt.waits+time.Second {
					r.Errorf("it waited %v, want %v", took, tt.waits)
				}
			})
		})
	}
}

func TestALastAttemptTakesItsKeyWithAnUnknownAsynq(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		lease := r.hold("order:1")
		ran := make(chan time.Time, 1)
		r.serveForeign(r.options(parkAlways()), asynq.Config{TaskCheckInterval: lookSeldom}, func(context.Context, *asynq.Task) error {
			ran <- time.Now()
			return nil
		}, broker.Fetch)
		task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
		<-time.After(2 * time.Minute)
		released := time.Now()
		if err := lease.Release(r.Context()); err != nil {
			r.Fatal(err)
		}
		if took := receive(r.T, ran).Sub(released); took > time.Second {
			r.Errorf("it ran %v after the release", took)
		}
		r.gone(task)
	})
}

// asynq puts the tasks that run back when the time for a shutdown is over. One that is on its last attempt must still
// be there by then.
func TestAShutdownArchivesNoLastAttemptWithAnUnknownAsynq(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.hold("order:1")
		server, _ := r.serveForeign(r.options(parkAlways()), asynq.Config{ShutdownTimeout: 3 * time.Second}, func(context.Context, *asynq.Task) error { return nil }, broker.Fetch)
		task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
		r.events.await(r, 1, func(e middleware.Event) bool { return e.Kind == middleware.Refused })
		r.attached.Stop()
		server.Shutdown()
		if info := r.info(task); info.State != asynq.TaskStatePending || info.Retried != 0 {
			r.Errorf("it is %+v", info)
		}
	})
}

// A server that was given another client cannot park: its first task says so, and what to do.
func TestAServerWithAnotherClientIsToldTheRemedy(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		told := make(chan error, 1)
		cfg := asynq.Config{ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { told <- err })}
		opts := r.options(nil)
		r.serveOn(r.client, r.attach(opts, cfg).Lock(opts.Key)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			r.Error("the handler ran without the means to wait")
			return nil
		})))
		task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
		if err := receive(r.T, told); !errors.Is(err, delayqueue.ErrNotOurs) {
			r.Errorf("the error is %v", err)
		}
		if info := r.settled(task, asynq.TaskStateRetry); !strings.Contains(info.LastErr, "give it Attached.Client") {
			r.Errorf("the task's last error is %q", info.LastErr)
		}
	})
}

// Nothing is known of what such an asynq would do to tasks, so none is fetched any more; those that wait are parked.
func TestAnUnknownAsynqFetchesNothingUnlessAllowed(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.hold("order:1")
		opts := r.options(parkAlways())
		log := new(lines)
		opts.Logger = slog.New(slog.NewTextHandler(log, nil))
		a := r.attach(opts, asynq.Config{TaskCheckInterval: lookSeldom})
		r.serveOn(asynqtest.OtherVersion{UniversalClient: a.Client(), Changed: func(sum string, keys []string) bool {
			kind, _ := broker.KindOf(sum, keys)
			return kind == broker.Ack
		}}, a.Lock(opts.Key)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })))
		waits := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0), asynq.Timeout(5*time.Second))
		r.settled(waits, asynq.TaskStateRetry)
		free := r.enqueue(payload{Key: "order:2"})
		<-time.After(30 * time.Second)
		if info := r.info(waits); info.State != asynq.TaskStateRetry || info.Retried != 0 {
			r.Errorf("the task that waits is %+v", info)
		}
		if info := r.info(free); info.State != asynq.TaskStatePending {
			r.Errorf("the next task is %v", info.State)
		}
		if n := log.count("level=ERROR"); n != 1 || log.count("AllowUnknownAsynq") != 1 {
			r.Errorf("%d errors are logged, want one with the remedy:\n%s", n, log.text.String())
		}
	})
}
