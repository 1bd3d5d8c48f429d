package delayqueue_test

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
)

func TestASequenceIsListedInTheOrderInWhichItsTasksRun(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	var want []delayqueue.Task
	for _, id := range []string{"c", "a", "b"} {
		task := r.Delayed(id)
		want = append(want, task)
		if _, err := r.Engine.Join(t.Context(), line.Task(task), "k", line.JoinOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.Park(want[2], "k") // who was refused first is parked first, which says nothing of the line
	r.Park(want[1], "k")
	got, err := r.inspector.Sequence(t.Context(), "k", 10)
	if err != nil || len(got) != len(want) {
		t.Fatalf("line %+v, %v", got, err)
	}
	for i, w := range got {
		if w.Task != want[i] || w.Position != i+1 || w.Key != "k" || time.Since(w.Since) > time.Minute ||
			w.State != map[bool]delayqueue.State{true: "scheduled", false: delayqueue.StateRetry}[i == 0] ||
			w.Next.IsZero() {
			t.Errorf("number %d is %+v, want %s", i+1, w, want[i])
		}
	}
	if got, err := r.inspector.Sequence(t.Context(), "k", 2); err != nil || len(got) != 2 {
		t.Errorf("two of them: %+v, %v", got, err)
	}
	if got, err := r.inspector.Sequence(t.Context(), "other", 2); err != nil || len(got) != 0 {
		t.Errorf("nobody's line: %+v, %v", got, err)
	}
}
