package middleware_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// For more than two days only the tasks' own timers look at the sequence; in the end each of them is woken.
func TestParkedEntriesDoNotAgeOut(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		const tasks, timer, rounds = 5, 20 * time.Hour, 3
		foreign := "railtoken:lock:{order:1}" // another program's, without an end
		if err := r.client.Set(r.Context(), foreign, "foreign", 0).Err(); err != nil {
			r.Fatal(err)
		}
		strategy := parkAlways()
		strategy.Delay, strategy.Limits = timer, delayqueue.Limits{Age: 200 * time.Hour}
		ran := make(chan string, tasks)
		serve := func() (*rig, *asynq.Server) {
			w := newRig(r.T, r.client)
			opts := w.options(strategy)
			opts.DisableReports = true // they would fill the hours
			server := w.serve(opts, asynq.Config{Concurrency: 1}, func(ctx context.Context, _ *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				ran <- id
				return nil
			})
			return w, server
		}
		var want []string
		for i := range tasks {
			want = append(want, r.enqueue(payload{Key: "order:1"}, asynq.TaskID(fmt.Sprint(i)), asynq.MaxRetry(3)).ID)
		}
		// Between the looks there is no worker and no subscription, so that no heartbeats, looks and pings fill the hours.
		for round := range rounds {
			w, server := serve()
			w.events.await(r, tasks, parked)
			<-time.After(time.Second)
			server.Shutdown()
			_ = w.attached.Close()
			_ = w.locker.Close()
			<-time.After(timer - time.Hour)
			if round < rounds-1 {
				<-time.After(time.Hour)
			}
		}
		serve()
		if err := r.client.Del(r.Context(), foreign).Err(); err != nil {
			r.Fatal(err)
		}
		released := time.Now()
		r.giveBack(r.hold("order:1"))
		for _, id := range want {
			if got := receive(r.T, ran); got != id {
				r.Errorf("task %s ran, want %s", got, id)
			}
		}
		if took := time.Since(released); took > prompt {
			r.Errorf("they ran %v after the release", took)
		}
	})
}

// On the virtual clock many tasks meet a held key in the very same microsecond.
func TestTiesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		const tasks = 20
		lease := r.hold("order:1")
		var want []string
		for i := range tasks {
			// The names say nothing of the order.
			want = append(want, r.enqueue(payload{Key: "order:1"}, asynq.TaskID(fmt.Sprint(i*7%tasks)), asynq.MaxRetry(3)).ID)
		}
		strategy := parkAlways()
		strategy.Delay = time.Hour
		ran := make(chan string, tasks)
		r.serve(r.options(strategy), asynq.Config{Concurrency: 1}, func(ctx context.Context, _ *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			ran <- id
			return nil
		})
		r.events.await(r, tasks, parked)
		firsts := map[string]int{}
		for _, id := range want {
			firsts[line.ParseWait(r.client.HGet(r.Context(), "asynq:{default}:t:"+id, line.WaitField).Val()).First.String()]++
		}
		if len(firsts) != 1 {
			r.Fatalf("the first conflicts lie at %v, want one moment", firsts)
		}
		<-time.After(time.Second)
		r.giveBack(lease)
		for i, id := range want {
			if got := receive(r.T, ran); got != id {
				r.Errorf("the task number %d to run is %s, want %s", i, got, id)
			}
		}
	})
}

func TestATaskThatIsEnqueuedWhileTheHolderRunsWaits(t *testing.T) {
	t.Parallel()
	l := newScene(t, redistest.Start(t).Client(t), "enqueued")
	if ran := l.runs(); len(ran) != 0 {
		t.Errorf("%v ran while the holder did", ran)
	}
	if got := l.parkedNow(); !slices.Equal(got, l.waiters) {
		t.Errorf("waiting are %v, want %v", got, l.waiters)
	}
	l.end(l.waiters)
	if ran, want := l.runs(), append([]delayqueue.Task{l.holder}, l.waiters...); !slices.Equal(ran, want) {
		t.Errorf("they ran in the order %v, want %v", ran, want)
	}
}

// A handler that returns at once, long before its lease would have been renewed, has succeeded, and wakes the next.
func TestAnEarlyReturnIsNoFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	const tasks = 60
	strategy := parkAlways()
	strategy.Delay = time.Hour
	failed := make(chan error, 10*tasks)
	cfg := asynq.Config{Concurrency: 8, ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { failed <- err })}
	r.serve(r.options(strategy), cfg, func(context.Context, *asynq.Task) error { return nil })
	var all []delayqueue.Task
	for i := range tasks {
		all = append(all, r.enqueue(payload{Key: fmt.Sprint("order:", i%3)}, asynq.MaxRetry(1), asynq.Retention(time.Hour)))
	}
	for _, task := range all {
		if info := r.settled(task, asynq.TaskStateCompleted); info.Retried != 0 {
			t.Errorf("task %s was retried %d times", task, info.Retried)
		}
	}
	for _, e := range r.events.await(t, tasks, func(e middleware.Event) bool { return e.Kind == middleware.Released }) {
		if e.Err != nil {
			t.Errorf("task %s: %v", e.Task, e.Err)
		}
	}
	if info, err := r.inspect.GetQueueInfo("default"); err != nil || info.Failed != 0 || info.Processed != tasks {
		t.Errorf("%+v, %v; want %d processed and none failed", info, err, tasks)
	}
	if len(failed) > 0 {
		t.Errorf("%d failed: %v", len(failed), <-failed)
	}
}

func TestEveryConflictHasAnEvent(t *testing.T) {
	t.Parallel()
	bounded := parkAlways()
	bounded.Limits.Conflicts, bounded.Delay = 1, time.Second
	taken := bounded
	taken.OnLimit = func(context.Context, *asynq.Task, *middleware.ConflictError) error { return nil }
	moving := parkAlways()
	moving.Queue = "elsewhere"
	for name, tt := range map[string]struct {
		strategy middleware.Strategy
		retries  int
		want     []middleware.Outcome // of the runs of the task
	}{
		"archive":    {middleware.FailFast{}, 3, []middleware.Outcome{middleware.Archive}},
		"retry":      {middleware.FailFast{Outcome: middleware.Retry}, 0, []middleware.Outcome{middleware.Retry}},
		"discard":    {middleware.FailFast{Outcome: middleware.Discard}, 3, []middleware.Outcome{middleware.Discard}},
		"complete":   {middleware.FailFast{Outcome: middleware.Complete}, 0, []middleware.Outcome{middleware.Complete}},
		"wait, fail": {middleware.Wait{}.Then(middleware.FailFast{}), 3, []middleware.Outcome{middleware.Archive}},
		"park":       {bounded, 3, []middleware.Outcome{middleware.Park, middleware.Archive}},
		"park, call": {taken, 3, []middleware.Outcome{middleware.Park, middleware.Archive}},
		"last":       {bounded, 0, []middleware.Outcome{middleware.Park, middleware.Archive}},
		"move":       {moving, 3, []middleware.Outcome{middleware.Park, middleware.Park}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				r.hold("order:1")
				cfg := asynq.Config{Queues: map[string]int{"default": 1, "elsewhere": 1}}
				r.serve(r.options(tt.strategy), cfg, func(context.Context, *asynq.Task) error { return nil })
				task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(tt.retries))
				r.events.await(r, len(tt.want), func(e middleware.Event) bool { return e.Kind == middleware.Ended })
				r.events.mu.Lock()
				defer r.events.mu.Unlock()
				refused := 0
				var got []middleware.Outcome
				for _, e := range r.events.all {
					if e.Kind == middleware.Woke && e.Cause == middleware.ByTimer {
						continue
					}
					if e.Task.ID != task.ID || e.Key != "order:1" || e.Holder == nil || e.Holder.Label != "the-holder" {
						r.Errorf("an event that does not name the task, the key or its holder: %+v", e)
					}
					switch e.Kind {
					case middleware.Refused:
						refused++
					case middleware.Ended:
						if refused != 1 {
							r.Errorf("a run ended in conflict, and its wait has %d refusals", refused)
						}
						conflict, ok := e.Err.(*middleware.ConflictError) //nolint:errorlint // an event carries the error itself
						if !ok || !strings.Contains(conflict.Error(), "the-holder") {
							r.Fatalf("it ended with %v", e.Err)
						}
						got = append(got, conflict.Outcome)
					case middleware.Parked:
					default:
						r.Errorf("an event that nothing happened for: %+v", e)
					}
				}
				if len(got) < len(tt.want) || !slices.Equal(got[:len(tt.want)], tt.want) {
					r.Errorf("the runs ended %v, want %v", got, tt.want)
				}
			})
		})
	}
}
