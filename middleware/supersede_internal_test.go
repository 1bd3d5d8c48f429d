package middleware

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/taskrun"
)

// latest returns the headers of a payload of which only the latest is to run.
func latest(number int, id string) map[string]string {
	return map[string]string{line.LatestHeader: fmt.Sprintf("railtoken:latest:{default}:record %016d %s", number, id)}
}

// Whether a run that began at noon, and was never refused, yields to a task.
func TestWhoYieldsToWhom(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		strategy Strategy
		order    Order
		group    string
		attempt  int
		first    time.Time
		yields   bool
		number   int // of the task's payload, if only the latest is to run; that of the run is 5
	}{
		"supersedes none":                           {Requeue{}, BestEffort, "g", 0, noon.Add(time.Second), true, 0},
		"supersedes none, the task is retried":      {Requeue{}, BestEffort, "g", 1, noon.Add(-time.Hour), true, 0},
		"supersedes none, the task is older":        {Requeue{}, BestEffort, "g", 0, noon.Add(-time.Hour), true, 0},
		"another group":                             {Requeue{}, BestEffort, "h", 0, noon.Add(time.Second), false, 0},
		"in order":                                  {Requeue{Order: FIFO}, FIFO, "g", 0, noon.Add(time.Second), false, 0},
		"supersedes its group":                      {Supersede{}, BestEffort, "g", 0, noon.Add(time.Second), true, 0},
		"supersedes its group, the clocks differ":   {Supersede{}, BestEffort, "g", 0, noon.Add(-clocksDiffer / 2), true, 0},
		"supersedes its group, the task is older":   {Supersede{}, BestEffort, "g", 0, noon.Add(-time.Minute), false, 0},
		"supersedes its group, the task is retried": {Supersede{}, BestEffort, "g", 1, noon.Add(time.Second), false, 0},
		"supersedes its group, not refused yet":     {Supersede{}, BestEffort, "g", 0, time.Time{}, true, 0},
		"supersedes another group":                  {&Supersede{Group: "h"}, BestEffort, "g", 1, noon.Add(-time.Hour), true, 0},
		"supersedes its group after a while":        {Wait{}.Then(Supersede{}), BestEffort, "g", 1, noon.Add(time.Second), false, 0},
		"the payload is newer":                      {Supersede{}, BestEffort, "g", 1, noon.Add(-time.Hour), true, 6},
		"the payload is older":                      {Supersede{}, BestEffort, "g", 0, noon.Add(time.Second), false, 4},
	} {
		l := &lock{Options: Options{Strategy: tt.strategy}, order: tt.order, group: taskrun.Group{Name: "g"}}
		r := &run{lock: l, task: asynq.NewTaskWithHeaders("test", nil, latest(5, "run")), id: line.Task{ID: "run"}, began: noon}
		s := holdings.Supersession{Group: tt.group, Attempt: tt.attempt, First: tt.first, ID: "task"}
		if tt.number > 0 {
			s.Headers = latest(tt.number, "task")
		}
		if got := r.yieldsTo(s); got != tt.yields {
			t.Errorf("%s: yields %v, want %v", name, got, tt.yields)
		}
	}
}
