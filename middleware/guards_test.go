package middleware_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware"
)

func TestAKeyWithAnEmptyPartArchivesTheTask(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		parts []string
		want  string
	}{
		{[]string{"order", "1042"}, "order:1042"},
		{[]string{"stock", "berlin", "7"}, "stock:berlin:7"},
		{[]string{"nightly"}, "nightly"},
		{[]string{"order", ""}, ""},
		{[]string{"stock", "", "7"}, ""},
		{[]string{"", "1042"}, ""},
	} {
		if got := middleware.Key(tt.parts[0], tt.parts[1:]...); got != tt.want {
			t.Errorf("Key(%q) is %q, want %q", tt.parts, got, tt.want)
		}
	}
	bubble(t, func(r *rig) {
		opts := r.options(nil)
		opts.Key = middleware.PayloadKey(func(p payload) string { return middleware.Key("order", p.Key) })
		r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error {
			r.Error("the handler was run")
			return nil
		})
		info := r.settled(r.enqueue(payload{}), asynq.TaskStateArchived)
		if !strings.Contains(info.LastErr, "is its field set in the payload?") {
			r.Errorf("the reason is %q", info.LastErr)
		}
	})
}

// Two middlewares in a row that lock the same key would wait for each other for good.
func TestTwoLocksOfOneKeyFailTheTaskAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		opts := r.options(nil)
		a := r.attach(opts, asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }})
		outer, inner := a.Lock(opts.Key), a.Lock(opts.Key)
		r.serveOn(a.Client(), outer(inner(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			r.Error("the handler was run")
			return nil
		}))))
		began := time.Now()
		info := r.settled(r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3)), asynq.TaskStateRetry)
		if took := time.Since(began); info.Retried != 1 || !strings.Contains(info.LastErr, "holds the key already") || took > time.Second {
			r.Errorf("after %v the task has failed %d times: %q", took, info.Retried, info.LastErr)
		}
	})
}

func TestATimeoutBeyondMaxHoldIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		maxHold time.Duration
		option  asynq.Option
		want    int
	}{
		"the defaults":                     {0, asynq.MaxRetry(1), 0},
		"a timeout of an hour":             {0, asynq.Timeout(time.Hour), 1},
		"a MaxHold as long":                {45 * time.Minute, asynq.Timeout(45 * time.Minute), 0},
		"the default timeout is too long":  {10 * time.Minute, asynq.MaxRetry(1), 1},
		"a deadline that is an hour ahead": {0, asynq.Deadline(time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				var log lines
				opts := r.options(nil)
				opts.MaxHold, opts.Logger = tt.maxHold, slog.New(slog.NewTextHandler(&log, nil))
				ran := make(chan struct{}, 3)
				r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error {
					ran <- struct{}{}
					return nil
				})
				for range 3 {
					r.enqueue(payload{Key: "order:1"}, tt.option)
					receive(r.T, ran)
				}
				if n := log.count("raise MaxHold, or lower asynq.Timeout"); n != tt.want || n > 0 && log.count("type=test") != n {
					r.Errorf("the log warns %d times, want %d: %s", n, tt.want, log.text.String())
				}
			})
		})
	}
}
