package delayqueue_test

import (
	"errors"
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
	copied, err := r.queue.Move(r.Context(), from, task, from.Queue+delayqueue.Suffix, time.Minute, retries)
	if err != nil {
		r.Fatal(err)
	}
	return copied
}

// claim claims a task.
func (r *rig) claim(t delayqueue.Task, headers map[string]string) bool {
	r.Helper()
	mine, err := r.queue.Claim(r.Context(), t, headers)
	if err != nil {
		r.Fatal(err)
	}
	return mine
}

func TestAMoveCarriesTheTaskAndIsIdempotent(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		deadline := time.Now().Add(time.Hour).Truncate(time.Second)
		original := r.delayed("a", asynq.Timeout(42*time.Second), asynq.Retention(time.Minute), asynq.Deadline(deadline))
		mine := map[string]string{"tenant": "7"}
		place := r.park(original, "k")
		copied := r.move(original, mine, 3)
		if want := (delayqueue.Task{Queue: r.name + ":delayed", ID: "a"}); copied != want {
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
		if !ok || moved.Origin != original || moved.Retries != 3 || moved.Before.Count != 1 || !moved.Before.First.Equal(place.First) {
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
	})
}

// headers returns those of a task.
func (r *rig) headers(t delayqueue.Task) map[string]string {
	r.Helper()
	info, err := r.inspect.GetTaskInfo(t.Queue, t.ID)
	if err != nil {
		r.Fatal(err)
	}
	return info.Headers
}

// remove deletes a task, as when it is done.
func (r *rig) remove(t delayqueue.Task) {
	r.Helper()
	if err := r.inspect.DeleteTask(t.Queue, t.ID); err != nil {
		r.Fatal(err)
	}
}

func TestOfAMovedTaskOneCopyRuns(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		original := r.delayed("a")
		if !r.claim(original, nil) {
			t.Error("a task that was never moved may not run")
		}
		copied := r.move(original, nil, 0)
		headers := r.headers(copied)
		for run := range 2 {
			if !r.claim(copied, headers) {
				t.Errorf("the copy may not run %d times", run+1)
			}
		}
		if r.claim(original, nil) {
			t.Error("the original runs although its copy runs")
		}
		r.remove(copied)
		if r.claim(original, nil) {
			t.Error("the original runs although its copy has run")
		}
		// A recovered original does not know, and may meet a conflict.
		_, err := r.queue.Move(t.Context(), original, asynq.NewTask("test", nil), copied.Queue, time.Minute, 0)
		if !errors.Is(err, delayqueue.ErrGone) {
			t.Errorf("moving it again gives %v, want ErrGone", err)
		}
	})
}

func TestARecoveredOriginalThatComesFirstKeepsItsCopyFromRunning(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		original := r.delayed("a")
		copied := r.move(original, nil, 0)
		if !r.claim(original, nil) || r.claim(copied, r.headers(copied)) {
			t.Error("want the original to run, and its copy not")
		}
	})
}

// A move fails halfway, the original runs after all and fails, and its next attempt is moved: that one has a right to run.
func TestAMoveThatFailedDoesNotSpoilTheNext(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		original := r.delayed("a")
		first := r.move(original, nil, 3)
		if !r.claim(original, nil) {
			t.Fatal("the original may not run")
		}
		second := r.move(original, nil, 2)
		if second == first {
			t.Fatalf("the next attempt was taken for the copy %s", first)
		}
		if r.claim(first, r.headers(first)) || !r.claim(second, r.headers(second)) {
			t.Error("want the first copy not to run, and the second to run")
		}
	})
}

func TestALaterTaskWithTheSameIDIsAnotherTask(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		first := r.delayed("a")
		copied := r.move(first, nil, 0)
		r.claim(copied, r.headers(copied))
		r.remove(first)
		second := r.delayed("a")
		if !r.claim(second, nil) {
			t.Error("it may not run")
		}
		// Its place in the delay queue is taken by the copy of the first.
		moved := r.move(second, nil, 0)
		if moved == copied || moved.Queue != copied.Queue {
			t.Errorf("it was moved to %s, where the copy of the first is", moved)
		}
		if again := r.move(second, nil, 0); again != moved {
			t.Errorf("a second move went to %s, the first to %s", again, moved)
		}
	})
}

func TestATaskIsMovedWithinItsQueueUnderAnotherID(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		queue := r.name + ":delayed"
		task := r.delayed("a", asynq.Queue(queue))
		if q := delayqueue.DelayQueue(queue); q != queue {
			t.Errorf("the delay queue of a delay queue is %q", q)
		}
		copied, err := r.queue.Move(t.Context(), task, asynq.NewTask("test", nil), queue, time.Minute, 0)
		if err != nil || copied == task || copied.Queue != task.Queue {
			t.Errorf("moved to %s, %v", copied, err)
		}
	})
}

func TestAQueueThatAsynqHasForgottenIsListedAnew(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task := r.delayed("a")
		r.client.SRem(t.Context(), "asynq:queues", r.name)
		r.move(task, nil, 0)
	})
}

func TestHeadersThatWereHandedOnDoNotCount(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		copied := r.move(r.delayed("a"), nil, 0)
		headers := r.headers(copied)
		if _, ok := delayqueue.MovedFrom(copied, headers); !ok {
			t.Fatal("the copy does not know that it was moved")
		}
		if _, ok := delayqueue.MovedFrom(delayqueue.Task{Queue: copied.Queue, ID: "child"}, headers); ok {
			t.Error("a child with its headers is taken for the copy")
		}
	})
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
