package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

func TestQueueThatAStrategyNamesIsWorkedOn(t *testing.T) {
	t.Parallel()
	w := idle(t, Config{Queues: map[string]int{"audit": 3}})
	for taskType, queue := range map[string]string{"a": "waiting", "b": "audit", "c": "waiting"} {
		h := Handler[order]{Run: nothing, Keys: order.keys, Strategy: middleware.Wait{}.Then(middleware.Requeue{Queue: queue})}
		if err := Handle(w, taskType, h); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := w.queues(), map[string]int{"audit": 3, "waiting": 1}; !maps.Equal(got, want) {
		t.Errorf("the queues are %v; want %v", got, want)
	}
}

func TestAsManyTasksRunAsTheConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		running.Add(7)
		finish := make(chan struct{})
		w, m := virtual(t, Config{Concurrency: 7})
		if err := Handle(w, "audit", Handler[order]{Unlocked: true, Run: func(context.Context, order) error {
			running.Done() // panics for one task too many
			<-finish
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		start(t, w)
		for range 7 + 3 {
			asynqtest.Enqueue(t, m, orderTask(t, "audit", "42"))
		}
		running.Wait()
		time.Sleep(time.Second)
		running.Add(3) // the rest
		close(finish)
		running.Wait()
	})
}

func TestSettingsReachAsynq(t *testing.T) {
	t.Parallel()
	base := context.WithValue(t.Context(), payloadKey{}, 1)
	w := idle(t, Config{
		TaskCheckInterval: 3 * time.Millisecond, DelayedTaskCheckInterval: 4 * time.Millisecond, ShutdownTimeout: 5 * time.Millisecond,
		StrictPriority: true, BaseContext: func() context.Context { return base },
	})
	c := w.attached.Config()
	if c.TaskCheckInterval != broker.CheckInterval || // the pacer makes the real one
		c.DelayedTaskCheckInterval != 4*time.Millisecond || c.ShutdownTimeout != 5*time.Millisecond ||
		!c.StrictPriority || c.BaseContext().Value(payloadKey{}) != 1 || c.Logger == nil {
		t.Errorf("asynq's configuration is %+v", c)
	}
	if c := idle(t, Config{}).attached.Config(); c.ErrorHandler != nil || c.IsFailure == nil || c.RetryDelayFunc == nil {
		t.Errorf("asynq's configuration by default is %+v", c)
	}
}

func TestIdleWorkerLooksForTasksAsOftenAsItSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = 200 * time.Millisecond
		looks := make(chan time.Time, 1000)
		w, _ := virtual(t, Config{TaskCheckInterval: interval}, redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if isLook(cmd) {
				looks <- time.Now()
			}
			return next(ctx, cmd)
		}))
		handle(t, w, "audit", nothing)
		start(t, w)
		time.Sleep(30 * time.Second)
		if err := w.Shutdown(); err != nil {
			t.Fatal(err)
		}
		close(looks)
		var longest time.Duration
		for last := <-looks; ; {
			at, ok := <-looks
			if !ok {
				break
			}
			longest, last = max(longest, at.Sub(last)), at
		}
		if longest > interval || longest < 8*interval/10 {
			t.Errorf("up to %v pass between two looks; want at most %v", longest, interval)
		}
	})
}

func TestConflictsDoNotReachTheUsersFunctions(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	var asked []error
	w := idle(t, Config{
		IsFailure:      func(err error) bool { asked = append(asked, err); return true },
		RetryDelayFunc: func(_ int, err error, _ *asynq.Task) time.Duration { asked = append(asked, err); return time.Hour },
		ErrorHandler:   asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { asked = append(asked, err) }),
	})
	c := w.attached.Config()
	tell := func(err error) (bool, time.Duration) {
		c.ErrorHandler.HandleError(t.Context(), nil, err)
		return c.IsFailure(err), c.RetryDelayFunc(0, err, nil)
	}
	failed, delay := tell(&middleware.ConflictError{Outcome: middleware.Park, RetryAfter: time.Minute})
	if failed || delay < time.Minute || delay > time.Minute+time.Second || len(asked) > 0 {
		t.Errorf("a parked task failed: %t, is retried after %v, and reached %v", failed, delay, asked)
	}
	failed, delay = tell(boom)
	if !failed || delay != time.Hour || !slices.Equal(asked, []error{boom, boom, boom}) {
		t.Errorf("a failure failed: %t, is retried after %v, and reached %v", failed, delay, asked)
	}
}

func TestWorkerIsStartedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := virtual(t, Config{})
		wantParts(t, w.Start(t.Context()), "no handler is registered")
		handle(t, w, "audit", nothing) // and it can still be started
		start(t, w)
		wantParts(t, w.Start(t.Context()), "started already")
		wantParts(t, w.Run(t.Context()), "started already")
		if err := w.Shutdown(); err != nil {
			t.Fatal(err)
		}
		wantParts(t, w.Start(t.Context()), "make a new one")
	})
}

func TestWorkerLogsWhatAsynqSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, lines := newLines()
		w, _ := virtual(t, Config{Logger: log})
		handle(t, w, "audit", nothing)
		start(t, w)
		if err := w.Shutdown(); err != nil {
			t.Fatal(err)
		}
		text := lines.all()
		for _, part := range []string{"level=INFO msg=asynq text=", "Starting processing", "Starting graceful shutdown"} {
			if !strings.Contains(text, part) {
				t.Errorf("the log lacks %q:\n%s", part, text)
			}
		}
	})
}

func TestAsynqLoggerKeepsLevelsAndDoesNotEndTheProcess(t *testing.T) {
	t.Parallel()
	log, lines := newLines()
	l := asynqLogger{log}
	l.Debug("a ", 1)
	l.Info("b ", 2)
	l.Warn("c ", 3)
	l.Error("d ", 4)
	l.Fatal("e ", 5)
	text := lines.all()
	for i, level := range []string{"DEBUG", "INFO", "WARN", "ERROR", "ERROR"} {
		if want := fmt.Sprintf("level=%s msg=asynq text=\"%c %d\"", level, 'a'+i, i+1); !strings.Contains(text, want) {
			t.Errorf("the log lacks %s:\n%s", want, text)
		}
	}
}
