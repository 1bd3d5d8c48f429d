package delayqueue_test

import (
	"maps"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"pgregory.net/rapid"

	"github.com/railtoken/railtoken/delayqueue"
)

// move moves a task that was made with these headers.
func (r *rig) move(from delayqueue.Task, headers map[string]string, retries int) delayqueue.Task {
	r.Helper()
	task := asynq.NewTaskWithHeaders("test", []byte("payload"), headers)
	copied, err := r.queue.Move(r.Context(), from, task, from.Queue+delayqueue.Suffix, time.Minute, retries,
		delayqueue.Conflict{Count: 7, First: time.UnixMicro(1234567)})
	if err != nil {
		r.Fatal(err)
	}
	return copied
}

// claim claims a task.
func (r *rig) claim(t delayqueue.Task, headers map[string]string) bool {
	r.Helper()
	mine, err := r.queue.Claim(r.Context(), t, headers, "default:delayed")
	if err != nil {
		r.Fatal(err)
	}
	return mine
}

func TestAMoveCarriesTheTaskAndIsIdempotent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	deadline := time.Now().Add(time.Hour).Truncate(time.Second)
	original := r.delayed("a", asynq.Timeout(42*time.Second), asynq.Retention(time.Minute), asynq.Deadline(deadline))
	mine := map[string]string{"tenant": "7"}
	copied := r.move(original, mine, 3)
	if want := (delayqueue.Task{Queue: "default:delayed", ID: "a"}); copied != want {
		t.Fatalf("moved to %s, want %s", copied, want)
	}
	if !maps.Equal(mine, map[string]string{"tenant": "7"}) {
		t.Error("the headers of the original were changed")
	}
	info, err := r.inspect.GetTaskInfo(copied.Queue, copied.ID)
	if err != nil {
		t.Fatal(err)
	}
	if info.Type != "test" || string(info.Payload) != "payload" || info.Headers["tenant"] != "7" || info.MaxRetry != 4 ||
		info.Timeout != 42*time.Second || info.Retention != time.Minute || !info.Deadline.Equal(deadline) {
		t.Errorf("the copy is %+v", info)
	}
	if due := time.Until(info.NextProcessAt); due < 58*time.Second || due > 62*time.Second {
		t.Errorf("the copy is due in %v, want about a minute", due)
	}
	moved, ok := delayqueue.MovedFrom(copied, info.Headers)
	if !ok || moved.Origin != original || moved.Retries != 3 || moved.Before.Count != 7 || moved.Before.First.UnixMicro() != 1234567 {
		t.Errorf("the copy knows %+v of its original", moved)
	}
	for attempt, want := range [][2]bool{{false, false}, {false, false}, {false, false}, {true, false}, {true, true}} {
		if last, over := moved.Exhausted(attempt); last != want[0] || over != want[1] {
			t.Errorf("Exhausted(%d) = %v, %v", attempt, last, over)
		}
	}
	r.move(original, mine, 3)
	again, err := r.inspect.GetTaskInfo(copied.Queue, copied.ID)
	if err != nil || !maps.Equal(again.Headers, info.Headers) {
		t.Errorf("a second move changed the copy: %+v, %v", again, err)
	}
}

func TestOfAMovedTaskOneCopyRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	original := r.delayed("a")
	if !r.claim(original, nil) {
		t.Error("a task that was never moved may not run")
	}
	copied := r.move(original, nil, 0)
	if r.claim(original, nil) {
		t.Error("the original runs although its copy waits")
	}
	info, err := r.inspect.GetTaskInfo(copied.Queue, copied.ID)
	if err != nil {
		t.Fatal(err)
	}
	for run := range 2 {
		if !r.claim(copied, info.Headers) {
			t.Errorf("the copy may not run %d times", run+1)
		}
	}
	if err := r.inspect.DeleteTask(copied.Queue, copied.ID); err != nil { // as when it is done
		t.Fatal(err)
	}
	if r.claim(original, nil) {
		t.Error("the original runs although its copy has run")
	}
	second := r.move(original, nil, 0) // by a recovered original that does not know
	info, err = r.inspect.GetTaskInfo(second.Queue, second.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r.claim(second, info.Headers) {
		t.Error("a second copy runs although the first has run")
	}
}

func TestATaskOfAnotherQueueWithTheSameIDIsAnotherTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	copied := r.move(r.delayed("a"), nil, 0)
	info, err := r.inspect.GetTaskInfo(copied.Queue, copied.ID)
	if err != nil {
		t.Fatal(err)
	}
	r.claim(copied, info.Headers)
	mine, err := r.queue.Claim(t.Context(), delayqueue.Task{Queue: "other", ID: "a"}, nil, "other:delayed")
	if err != nil || !mine {
		t.Errorf("Claim = %v, %v", mine, err)
	}
}

func TestOrdinaryHeadersAreNotThoseOfAMovedTask(t *testing.T) {
	t.Parallel()
	for _, headers := range []map[string]string{nil, {"tenant": "7"}, {"Railtoken-Move": "x"}, {"Railtoken-Move": "x", "Railtoken-Origin": "q", "Railtoken-Retries": "-1"}} {
		if m, ok := delayqueue.MovedFrom(delayqueue.Task{}, headers); ok {
			t.Errorf("%v is taken for %+v", headers, m)
		}
	}
}

func TestADelayIsNeverCutShort(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		d := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "d"))
		got := delayqueue.WholeSeconds(now, d)
		if kept := time.Unix(now.Add(got).Unix(), 0); kept.Before(now.Add(d)) || got-d >= time.Second {
			t.Fatalf("%v from %v becomes %v: asynq keeps %v", d, now, got, kept)
		}
	})
}
