package delayqueue_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
)

// always counts every error as a failure: as asynq does by default.
var always = asynq.Config{IsFailure: func(error) bool { return true }}

// asynq counts a run that was cancelled as a failure, whatever its Config says.
func TestACancelledParkBlamesNoConfig(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	log := new(bytes.Buffer)
	queue, err := delayqueue.New(r.client, delayqueue.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	r.ok(err)
	t.Cleanup(func() { _ = queue.Close() })
	r.queue = queue
	parked := make(chan delayqueue.Parked, 1)
	serve(t, r.queue, always, func(ctx context.Context, id string) error {
		run, err := r.queue.Run(delayqueue.Task{Queue: "default", ID: id})
		if err != nil {
			return err
		}
		run.Park("k", delayqueue.ParkOptions{Look: time.Hour}, func(p delayqueue.Parked) { parked <- p })
		for began := time.Now(); ctx.Err() == nil && time.Since(began) < limit; <-time.After(time.Millisecond) {
			if err := r.inspect.CancelProcessing(id); err != nil {
				return err
			}
		}
		run.End(ctx)
		return errRefused
	})
	_, err = r.tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a"), asynq.MaxRetry(0))
	r.ok(err)
	receive(t, parked)
	r.until("the run is forgotten", func() bool { return r.queue.Runs() == 0 })
	r.uncounted()
	if log.Len() > 0 {
		t.Errorf("the log says %q", log)
	}
}

func TestAParkThatIsWithdrawnIsNoPark(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	serve(t, r.queue, always, func(ctx context.Context, id string) error {
		run, err := r.queue.Run(delayqueue.Task{Queue: "default", ID: id})
		if err != nil {
			return err
		}
		run.Park("k", delayqueue.ParkOptions{Look: time.Hour}, func(delayqueue.Parked) { t.Error("it was parked") })
		run.Withdraw()
		run.End(ctx)
		return errRefused
	})
	_, err := r.tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a"), asynq.MaxRetry(0))
	r.ok(err)
	r.until("the task is archived", func() bool {
		info, err := r.inspect.GetTaskInfo("default", "a")
		return err == nil && info.State == asynq.TaskStateArchived
	})
	if got := r.waiting("k"); len(got) != 0 {
		t.Errorf("in line are %v", got)
	}
}
