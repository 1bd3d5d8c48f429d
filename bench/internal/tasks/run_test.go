package tasks_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/tasks"
)

func needRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
}

func TestThoseWhoLockLetNoTasksOfAKeyOverlap(t *testing.T) {
	t.Parallel()
	needRedis(t)
	s := tasks.Repeat("", 2, 4, 5*time.Millisecond, 1)
	s.Bare = tasks.Slots // so that bare shows what the others prevent
	for _, c := range tasks.All {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			got, err := tasks.Run(t.Context(), t.TempDir(), c, s, time.Minute, nil)
			if err != nil {
				t.Fatal(err)
			}
			if (c.Name != "bare") == (got.Overlaps > 0) || got.Done != 8 || !got.Finished || got.Err != "" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestInOrderTheTasksOfAKeyAreDoneAsTheyWereEnqueued(t *testing.T) {
	t.Parallel()
	needRedis(t)
	s := tasks.Repeat("", 3, 15, 2*time.Millisecond, 1)
	for _, c := range []tasks.Contestant{tasks.RailtokenFIFO, tasks.RailtokenStrictFIFO} {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			got, err := tasks.Run(t.Context(), t.TempDir(), c, s, time.Minute, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got.Done != len(s.Tasks) {
				t.Fatalf("got %+v", got)
			}
			last := map[string]time.Duration{}
			for n, task := range s.Tasks {
				if got.At[n] <= last[task.Key] {
					t.Errorf("task %d of %s was done at %v, one before it at %v", n, task.Key, got.At[n], last[task.Key])
				}
				last[task.Key] = got.At[n]
			}
		})
	}
}

func TestATaskWhoseMutexHasUsedUpItsTriesIsRetriedAndDone(t *testing.T) {
	t.Parallel()
	needRedis(t)
	s := tasks.Repeat("", 1, 2, time.Millisecond, 1)
	s.Tasks[0].Work = 15 * time.Second // redsync tries 32 times, with up to 250 ms between them
	s.Tasks[1].After = 100 * time.Millisecond
	got, err := tasks.Run(t.Context(), t.TempDir(), tasks.SleepRedsync, s, time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Done != 2 || got.AtMost(1) == 1 || got.Err != "" || got.Overlaps != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestARunEndsWhenItsTimeIsUp(t *testing.T) {
	t.Parallel()
	needRedis(t)
	s := tasks.Repeat("", 1, 3, time.Minute, 1)
	for _, c := range []tasks.Contestant{tasks.Railtoken, tasks.SleepRetry, tasks.SleepRedsync} {
		got, err := tasks.Run(t.Context(), t.TempDir(), c, s, 200*time.Millisecond, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.Finished || got.Done != 0 || got.Took < 200*time.Millisecond || got.Took > 20*time.Second {
			t.Errorf("%s: %+v", c.Name, got)
		}
	}
}

func TestARehearsalLearnsWhatIsCountedThen(t *testing.T) {
	t.Parallel()
	needRedis(t)
	s := tasks.Repeat("", 1, 50, time.Millisecond, 1)
	limits := 30 * time.Second
	sent, err := tasks.Rehearse(t.Context(), t.TempDir(), tasks.Bare, s, limits)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tasks.Run(t.Context(), t.TempDir(), tasks.Bare, s, limits, sent)
	if err != nil {
		t.Fatal(err)
	}
	// asynq takes and acknowledges each task by one script; some more commands are for its looks at empty queues.
	if got.PerTask() < 2 || got.PerTask() > 5 {
		t.Errorf("%v commands for each task", got.PerTask())
	}
}
