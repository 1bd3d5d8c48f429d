package middleware_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// inspector returns an Inspector of the rig's Redis.
func (r *rig) inspector() *inspect.Inspector {
	r.Helper()
	i, err := inspect.New(inspect.Options{Tasks: r.client})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = i.Close() })
	return i
}

// cancelTask cancels a task, and checks whether its run was told.
func (r *rig) cancelTask(t delayqueue.Task, c inspect.Cancellation, told bool) {
	r.Helper()
	if got, err := r.inspector().Cancel(r.Context(), t, c); err != nil || got != told {
		r.Fatalf("told %v, error %v", got, err)
	}
}

// parksInEachOrder are the strategies that park tasks, one for each order.
var parksInEachOrder = map[string]middleware.Strategy{
	"best effort": middleware.Requeue{}, "fifo": middleware.Requeue{Order: middleware.FIFO}, "strict": middleware.Requeue{Order: middleware.StrictFIFO},
}

var byAnn = inspect.Cancellation{By: "ann", Why: "ordered twice"}

// How a run ends whose task is cancelled, and whether the next task of the key runs after it has cleaned up.
func TestACancelledRunEndsAsAsked(t *testing.T) {
	t.Parallel()
	discard := byAnn
	discard.Discard = true
	for name, c := range map[string]struct {
		how   inspect.Cancellation
		end   func(ctx context.Context) error
		state asynq.TaskState // 0 if the task is gone
		text  string
	}{
		"archived":            {byAnn, context.Cause, asynq.TaskStateArchived, "railtoken: cancelled by ann: ordered twice"},
		"archived, own error": {byAnn, func(context.Context) error { return errors.New("half") }, asynq.TaskStateArchived, "ordered twice; the handler returned: half"},
		"archived, the cause": {byAnn, func(ctx context.Context) error { return ctx.Err() }, asynq.TaskStateArchived, "ordered twice"},
		"deleted":             {discard, context.Cause, 0, ""},
		"it succeeds":         {byAnn, func(context.Context) error { return nil }, 0, ""},
		"it has been committed": {byAnn, func(ctx context.Context) error {
			lease, _ := locking.FromContext(ctx)
			lease.MarkCommitted()
			return ctx.Err()
		}, 0, ""},
	} {
		for strategyName, strategy := range parksInEachOrder {
			t.Run(name+"/"+strategyName, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(r *rig) {
					began, causes, next := make(chan struct{}, 2), make(chan error, 1), make(chan error, 1)
					var first *locking.Lease
					r.serve(r.options(strategy), asynq.Config{Concurrency: 4}, func(ctx context.Context, task *asynq.Task) error {
						lease, _ := locking.FromContext(ctx)
						if first != nil {
							next <- first.Err()
							return nil
						}
						first = lease
						began <- struct{}{}
						<-ctx.Done()
						<-time.After(time.Second) // it cleans up
						causes <- errors.Join(context.Cause(ctx), lease.Err())
						return c.end(ctx)
					})
					task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
					receive(r.T, began)
					second := r.enqueue(payload{Key: "order:1"})
					r.events.await(r, 1, parked)
					r.cancelTask(task, c.how, true)
					cause := receive(r.T, causes)
					if by, ok := errors.AsType[*middleware.CancelledError](cause); !ok || by.By != "ann" || by.Why != "ordered twice" || errors.Is(cause, locking.ErrLost) {
						r.Errorf("the cause is %v", cause)
					}
					if err := receive(r.T, next); !errors.Is(err, locking.ErrReleased) {
						r.Errorf("as the next task ran, the lease of the cancelled one was %v", err)
					}
					if c.state == 0 {
						r.gone(task)
					} else if info := r.settled(task, c.state); info.Retried != 0 || !strings.Contains(info.LastErr, c.text) {
						r.Errorf("it is %+v", info)
					}
					r.gone(second)
				})
			})
		}
	}
}

// The word in Redis counts: a cancellation is carried out within seconds if the message is lost, or the worker dies.
func TestACancellationOutlivesItsMessageAndTheWorker(t *testing.T) {
	t.Parallel()
	t.Run("the message is lost", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(r *rig) {
			began, causes := make(chan struct{}, 1), make(chan error, 1)
			r.serve(r.options(middleware.Requeue{}), asynq.Config{Concurrency: 4}, func(ctx context.Context, _ *asynq.Task) error {
				began <- struct{}{}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			})
			task := r.enqueue(payload{Key: "order:1"})
			receive(r.T, began)
			lost := redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if cmd.Name() == "publish" {
					return nil
				}
				return next(ctx, cmd)
			})
			r.client.(*redis.Client).AddHook(lost) //nolint:forcetypeassert // it is that of a bubble
			// As many others ignore their contexts.
			for n := range 150 {
				id := strconv.Itoa(n)
				r.client.HSet(r.Context(), "asynq:{default}:t:"+id, "state", "active", "pending_since", "another run", "railtoken:cancel", `{"by":"bob"}`)
				r.client.ZAdd(r.Context(), "railtoken:cancelled", redis.Z{Score: float64(n), Member: "7:default" + id})
			}
			asked := time.Now()
			r.cancelTask(task, byAnn, true)
			if _, ok := errors.AsType[*middleware.CancelledError](receive(r.T, causes)); !ok || time.Since(asked) > 6*time.Second {
				r.Errorf("after %v", time.Since(asked))
			}
			r.settled(task, asynq.TaskStateArchived)
		})
	})
	t.Run("the worker dies", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(r *rig) {
			r.serve(r.options(middleware.Requeue{}), asynq.Config{Concurrency: 4}, func(context.Context, *asynq.Task) error {
				t.Error("it has run")
				return nil
			})
			task := r.enqueue(payload{Key: "order:1"}, asynq.ProcessIn(time.Hour))
			r.client.HSet(r.Context(), "asynq:{default}:t:"+task.ID, "pending_since", "the run of a dead worker")
			r.fetch(task)
			r.cancelTask(task, byAnn, true)
			// asynq's recoverer retries it.
			_, err := r.client.TxPipelined(r.Context(), func(p redis.Pipeliner) error {
				p.LRem(r.Context(), "asynq:{default}:active", 0, task.ID)
				p.ZRem(r.Context(), "asynq:{default}:lease", task.ID)
				p.ZAdd(r.Context(), "asynq:{default}:retry", redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: task.ID})
				p.HSet(r.Context(), "asynq:{default}:t:"+task.ID, "state", "retry")
				return nil
			})
			if err != nil {
				r.Fatal(err)
			}
			asked := time.Now()
			if info := r.settled(task, asynq.TaskStateArchived); info.LastErr != "railtoken: cancelled by ann: ordered twice" || time.Since(asked) > 6*time.Second {
				r.Errorf("it is %+v after %v", info, time.Since(asked))
			}
			if n := r.client.ZCard(r.Context(), "railtoken:cancelled").Val(); n != 0 {
				<-time.After(6 * time.Second)
				if n = r.client.ZCard(r.Context(), "railtoken:cancelled").Val(); n != 0 {
					r.Errorf("%d cancellations are left", n)
				}
			}
		})
	})
}

// An operator may run a cancelled task again.
func TestACancelledTaskThatIsRunAgainIsNotCancelledAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		began, ran := make(chan struct{}, 2), make(chan error, 2)
		r.serve(r.options(middleware.Requeue{}), asynq.Config{Concurrency: 4}, func(ctx context.Context, _ *asynq.Task) error {
			began <- struct{}{}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Second): // several looks
			}
			ran <- context.Cause(ctx)
			return ctx.Err()
		})
		task := r.enqueue(payload{Key: "order:1"}, asynq.Timeout(time.Minute))
		receive(r.T, began)
		r.cancelTask(task, byAnn, true)
		if err := receive(r.T, ran); err == nil {
			r.Error("it was not cancelled")
		}
		r.settled(task, asynq.TaskStateArchived)
		<-time.After(10 * time.Millisecond) // what is left of the cancellation goes behind the acknowledgement
		if err := r.inspect.RunTask(task.Queue, task.ID); err != nil {
			r.Fatal(err)
		}
		if err := receive(r.T, ran); err != nil {
			r.Errorf("it was cancelled again: %v", err)
		}
	})
}
