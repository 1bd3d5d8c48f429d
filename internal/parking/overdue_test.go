package parking_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/parking"
)

// It tells when asynq's message is no longer what we read: the deadline stands behind a payload and headers of any
// form.
func TestOnlyATaskThatAsynqWillNotRunAgainIsOverdue(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		for name, tt := range map[string]struct {
			deadline time.Duration // none when zero
			delayed  bool
			gone     bool
		}{
			"no deadline":                 {0, true, false},
			"a deadline to come":          {time.Hour, true, false},
			"a deadline that has passed":  {-time.Minute, true, true},
			"one that is about to be run": {-time.Minute, false, false},
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
				for _, task := range []parking.Task{late, next} {
					if _, err := r.Engine.Join(t.Context(), task, r.key("k"), parking.JoinOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				turn, err := r.Engine.Join(t.Context(), next, r.key("k"), parking.JoinOptions{})
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
