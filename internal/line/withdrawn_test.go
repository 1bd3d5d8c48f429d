package line_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/linetest"
)

// always counts every error as a failure: as asynq does by default.
var always = asynq.Config{IsFailure: func(error) bool { return true }}

// asynq counts a run that was cancelled as a failure, whatever its Config says.
func TestACancelledParkBlamesNoConfig(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	log := new(bytes.Buffer)
	queue, err := line.New(r.Client, line.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	r.OK(err)
	t.Cleanup(func() { _ = queue.Close() })
	r.Engine = queue
	parked := make(chan line.Parked, 1)
	linetest.Serve(t, r.Engine, always, func(ctx context.Context, id string) error {
		run, err := r.Engine.Run(line.Task{Queue: "default", ID: id})
		if err != nil {
			return err
		}
		run.Park("k", line.ParkOptions{RetryAfter: time.Hour}, func(p line.Parked) { parked <- p })
		for began := time.Now(); ctx.Err() == nil && time.Since(began) < limit; <-time.After(time.Millisecond) {
			if err := r.Inspect.CancelProcessing(id); err != nil {
				return err
			}
		}
		run.End(ctx)
		return errRefused
	})
	_, err = r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a"), asynq.MaxRetry(0))
	r.OK(err)
	receive(t, parked)
	r.Until("the run is forgotten", func() bool { return r.Engine.Runs() == 0 })
	r.uncounted()
	if log.Len() > 0 {
		t.Errorf("the log says %q", log)
	}
}

func TestAParkThatIsWithdrawnIsNoPark(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	linetest.Serve(t, r.Engine, always, func(ctx context.Context, id string) error {
		run, err := r.Engine.Run(line.Task{Queue: "default", ID: id})
		if err != nil {
			return err
		}
		run.Park("k", line.ParkOptions{RetryAfter: time.Hour}, func(line.Parked) { t.Error("it was parked") })
		run.Withdraw()
		run.End(ctx)
		return errRefused
	})
	_, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a"), asynq.MaxRetry(0))
	r.OK(err)
	r.Until("the task is archived", func() bool {
		info, err := r.Inspect.GetTaskInfo("default", "a")
		return err == nil && info.State == asynq.TaskStateArchived
	})
	if got := r.Waiting("k"); len(got) != 0 {
		t.Errorf("in line are %v", got)
	}
}
