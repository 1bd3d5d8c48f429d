package broker

import (
	"testing"
	"time"
)

// An outage is 20 s without an answer, and hides tasks for 30 s: once from each queue.
func TestAnOutageHidesTasksOnceFromEachQueue(t *testing.T) {
	t.Parallel()
	now := time.Unix(1700000000, 0)
	for after, outage := range map[time.Duration]bool{20*time.Second - 1: false, 20 * time.Second: true} {
		var r recovery
		r.failed(now, now.Add(-after))
		if got := r.withholds("q", now); got != outage {
			t.Errorf("after %v without an answer tasks are hidden: %v", after, got)
		}
	}
	var r recovery
	r.failed(now, now.Add(-time.Minute))
	for i, look := range []struct {
		queue string
		at    time.Duration
		want  bool
	}{
		{"q", time.Second, true},
		{"r", 2 * time.Second, true},
		{"q", 3 * time.Second, false},
		{"q", 30*time.Second - 1, true}, // asynq has looked since
		{"s", 30 * time.Second, false},
		{"s", 29 * time.Second, true},
	} {
		if got := r.withholds(look.queue, now.Add(look.at)); got != look.want {
			t.Errorf("look %d: tasks of %s are hidden after %v: %v", i, look.queue, look.at, got)
		}
	}
}
