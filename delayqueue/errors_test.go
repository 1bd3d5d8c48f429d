package delayqueue_test

import (
	"testing"

	"github.com/railtoken/railtoken/delayqueue"
)

func TestATaskThatWaitsForAnotherKeyIsToldSo(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task := r.Delayed("1")
	r.Park(task, "another")
	err := r.inspector.PutFirst(t.Context(), "k", task)
	want := `delayqueue: task default/1 does not wait for key "k": it is in state retry and waits for key "another"`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestTheErrorOfAReplayNamesTheTask(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	err := r.inspector.Replay(t.Context(), delayqueue.Task{Queue: "default", ID: "none"})
	if want := "delayqueue: replay task default/none: delayqueue: the task is gone"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
