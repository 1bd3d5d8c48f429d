package line_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
)

// lastErr returns what asynq says was the last error of a task.
func (r *rig) lastErr(t line.Task) string {
	r.Helper()
	info, err := r.Inspect.GetTaskInfo(t.Queue, t.ID)
	if err != nil {
		r.Fatal(err)
	}
	return info.LastErr
}

// The text names neither key nor holder, which will have changed when it is read.
func TestAWaitIsTheLastErrorWhileItLasts(t *testing.T) {
	t.Parallel()
	broken := errors.New("it is broken")
	for name, tt := range map[string]struct {
		fails string // before it waits
		waits func(r *rig, run *line.Run)
	}{
		"parks":                {waits: func(r *rig, run *line.Run) { run.Park(r.key("k"), line.ParkOptions{RetryAfter: time.Hour}, nil) }},
		"parks after a fault":  {fails: "it is broken", waits: func(r *rig, run *line.Run) { run.Park(r.key("k"), line.ParkOptions{RetryAfter: time.Hour}, nil) }},
		"is postponed":         {waits: func(_ *rig, run *line.Run) { run.Postpone(time.Hour) }},
		"postponed, a failure": {fails: "it is broken", waits: func(_ *rig, run *line.Run) { run.Postpone(time.Hour) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, r *rig) {
				runs, during := 0, make(chan string, 1)
				r.Serve(1, func(ctx context.Context, _ string) error {
					task, err := line.TaskOf(ctx)
					if err != nil {
						return err
					}
					run, err := r.Engine.Run(task)
					if err != nil {
						return err
					}
					defer run.End(ctx)
					runs++
					if runs == 1 && tt.fails != "" {
						return broken
					} else if runs == 1 || runs == 2 && tt.fails != "" {
						tt.waits(r, run)
						return errors.New("key k is held by a holder that will be gone")
					}
					during <- r.lastErr(task)
					return nil
				})
				_, err := r.Tasks.Enqueue(asynq.NewTask("test", []byte("payload")), asynq.Queue(r.name), asynq.TaskID("a"),
					asynq.MaxRetry(2), asynq.Retention(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				task := r.task("a")
				if tt.fails != "" {
					r.Until("it has failed", func() bool { return r.lastErr(task) == tt.fails })
					r.runNow(task)
				}
				r.Until("it waits", func() bool { return r.lastErr(task) == line.WaitText })
				r.runNow(task)
				if text := receive(t, during); text != tt.fails {
					t.Errorf("during the run its last error is %q, want %q", text, tt.fails)
				}
				r.Become(task, asynq.TaskStateCompleted)
				if info, err := r.Inspect.GetTaskInfo(r.name, "a"); err != nil || info.LastErr != tt.fails ||
					string(info.Payload) != "payload" {
					t.Errorf("asynq has %+v, %v, want the last error %q", info, err, tt.fails)
				}
			})
		})
	}
}

// runNow has a task run that waits in the retry set.
func (r *rig) runNow(t line.Task) {
	r.Helper()
	r.Become(t, asynq.TaskStateRetry)
	if err := r.Inspect.RunTask(t.Queue, t.ID); err != nil {
		r.Fatal(err)
	}
}

func TestATaskThatIsEnqueuedWaitingSaysSo(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for id, other := range map[string]asynq.Option{"a": asynq.MaxRetry(1), "b": asynq.Unique(time.Hour)} {
			opts := []asynq.Option{asynq.Queue(r.name), asynq.TaskID(id), other}
			if _, err := r.add(line.EnqueueOptions{
				WaitFor: r.key("k"), ParkOptions: line.ParkOptions{RetryAfter: time.Hour},
			}, opts...); err != nil {
				t.Fatal(err)
			}
			if text := r.lastErr(r.task(id)); text != line.WaitText {
				t.Errorf("%s: its last error is %q", id, text)
			}
		}
	})
}

// A header is the end of asynq's message. This one ends like that of a parked task of an earlier version.
func TestATextThatEndsLikeAWaitStays(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		hostile := "\x3a\x1d" + line.WaitText
		runs, during := 0, make(chan string, 2)
		r.Serve(1, func(ctx context.Context, _ string) error {
			task, err := line.TaskOf(ctx)
			if err != nil {
				return err
			}
			run, err := r.Engine.Run(task)
			if err != nil {
				return err
			}
			defer run.End(ctx)
			info, err := r.Inspect.GetTaskInfo(task.Queue, task.ID)
			if err != nil {
				during <- err.Error()
				return err
			}
			during <- info.Headers["note"]
			runs++
			if runs == 1 {
				run.Park(r.key("k"), line.ParkOptions{RetryAfter: time.Hour}, nil)
				return errors.New("key k is held")
			}
			return nil
		})
		_, err := r.Tasks.Enqueue(asynq.NewTaskWithHeaders("test", nil, map[string]string{"note": hostile}), asynq.Queue(r.name),
			asynq.TaskID("a"))
		if err != nil {
			t.Fatal(err)
		}
		if got := receive(t, during); got != hostile {
			t.Errorf("its first run has the header %q", got)
		}
		task := r.task("a")
		r.Until("it waits", func() bool { return r.lastErr(task) == line.WaitText })
		r.runNow(task)
		if got := receive(t, during); got != hostile {
			t.Errorf("its second run has the header %q", got)
		}
	})
}
