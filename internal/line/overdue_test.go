package line_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
)

// It tells when asynq's message is no longer what we read: the deadline stands behind a payload and headers of any
// form.
func TestOnlyATaskThatAsynqWillNotRunAgainIsOverdue(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		for name, tt := range map[string]struct {
			deadline time.Duration // none when zero
			delayed  bool
			waited   bool // its timer has brought it back
			gone     bool
		}{
			"no deadline":                {0, true, false, false},
			"a deadline to come":         {time.Hour, true, false, false},
			"a deadline that has passed": {-time.Minute, true, false, true},
			"one that is pending":        {-time.Minute, false, false, false}, // its message is not read
			"one that has waited":        {-time.Minute, false, true, true},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, kind)
				task := asynq.NewTaskWithHeaders("test", []byte(strings.Repeat("\x48\x01", 300)),
					map[string]string{"\x48": "\x48\x01"})
				opts := []asynq.Option{
					asynq.Queue(r.name), asynq.TaskID("late"), asynq.Timeout(time.Hour),
					asynq.Retention(time.Hour),
				}
				if tt.delayed {
					opts = append(opts, asynq.ProcessIn(time.Hour))
				}
				if tt.deadline != 0 {
					opts = append(opts, asynq.Deadline(time.Now().Add(tt.deadline)))
				}
				if _, err := r.Tasks.Enqueue(task, opts...); err != nil {
					t.Fatal(err)
				}
				late, next := r.task("late"), r.Delayed("next")
				if tt.waited {
					r.Park(late, "k")
					r.timer(late)
				}
				for _, task := range []line.Task{late, next} {
					if _, err := r.Engine.Join(t.Context(), task, r.key("k"), line.JoinOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				turn, err := r.Engine.Join(t.Context(), next, r.key("k"), line.JoinOptions{})
				if err != nil || (turn.Ahead == 0) != tt.gone {
					t.Errorf("%d tasks stand before the next: %v", turn.Ahead, err)
				}
				left, err := r.Engine.Remove(t.Context(), r.task("nobody"), r.key("k"))
				if err != nil || (left.Next[0] == next) != tt.gone {
					t.Errorf("%v are next: %v", left.Next, err)
				}
			})
		}
	}
}

// timer brings a task back that is parked, as its own timer does.
func (r *rig) timer(t line.Task) {
	r.Helper()
	if err := r.Inspect.RunTask(t.Queue, t.ID); err != nil {
		r.Fatal(err)
	}
}

// joins adds a task to a sequence at a position.
func (r *rig) joins(t line.Task, key string, at int64) {
	r.Helper()
	if _, err := r.Engine.Join(r.Context(), t, r.key(key), line.JoinOptions{At: time.Unix(at, 0)}); err != nil {
		r.Fatal(err)
	}
}

// asynq ends such a run without the handler, which would give up the task's position.
func TestATaskFetchedPastItsDeadlineWakesTheNext(t *testing.T) {
	t.Parallel()
	for how, pending := range map[string]func(r *rig, deadline asynq.Option){
		"enqueued in order": func(r *rig, deadline asynq.Option) {
			_, err := r.Engine.EnqueueInOrder(r.Context(), r.key("k"), "test", nil, map[string]string{"other": "header"},
				asynq.Queue(r.name), asynq.TaskID("late"), deadline)
			if err != nil {
				r.Fatal(err)
			}
		},
		"has waited": func(r *rig, deadline asynq.Option) {
			late := r.Delayed("late", deadline)
			r.Park(late, "k")
			r.timer(late)
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, r *rig) {
				next := r.Delayed("next")
				r.joins(next, "k", 2)
				r.joins(r.task("late"), "k", 1)
				r.Park(next, "k")
				pending(r, asynq.Deadline(time.Now().Add(-time.Minute)))
				ran := make(chan string, 2)
				r.Serve(1, func(_ context.Context, id string) error {
					ran <- id
					return nil
				})
				if id := receive(t, ran); id != "next" {
					t.Errorf("asynq ran %s", id)
				}
			})
		})
	}
}

// The deadline may pass, or an operator may delete the task, after the caller has seen that it is first.
func TestWakeTaskReplacesATaskThatIsGone(t *testing.T) {
	t.Parallel()
	for how, gone := range map[string]func(r *rig) line.Task{
		"deleted": func(r *rig) line.Task {
			task := r.Delayed("gone")
			r.Park(task, "k")
			r.Remove(task)
			return task
		},
		"overdue": func(r *rig) line.Task {
			task := r.Delayed("gone", asynq.Deadline(time.Now().Add(-time.Minute)))
			r.Park(task, "k")
			return task
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, r *rig) {
				next, last := r.Delayed("next"), r.Delayed("last")
				r.Park(last, "k")
				r.Park(next, "k")
				r.joins(next, "k", 2)
				r.joins(last, "k", 3)
				r.joins(r.task("gone"), "k", 1)
				woken := r.wakeTask("k", gone(r))
				if !slices.Equal(woken.Tasks, []line.Task{next}) || woken.Left != 1 {
					t.Errorf("woke %+v, want %s", woken, next)
				}
				if got := r.Waiting("k"); !slices.Equal(got, []string{"last"}) {
					t.Errorf("waiting are %v", got)
				}
			})
		})
	}
}
