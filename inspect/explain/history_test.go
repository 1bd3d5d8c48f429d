package explain_test

import (
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/inspect/explain"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/middleware"
)

func TestATaskThatSupersedesOthersIsExplained(t *testing.T) {
	t.Parallel()
	s := newSystem(t).start()
	s.await(middleware.Acquired, "any", order1, asynq.TaskID("first"))
	other := s.await(middleware.Parked, "any", order1)
	e := s.explain(s.await(middleware.Parked, "cancel", order1))
	if e.Cause != explain.Held || e.Position != 1 || e.Waiters != 2 || e.Supersedes != "orders" ||
		!strings.Contains(e.Why, `it supersedes the tasks of group "orders"`) {
		t.Errorf("it is explained by %+v", e)
	}
	if e := s.explain(other); e.Cause != explain.Behind || e.Position != 2 || e.Supersedes != "" || strings.Contains(e.Why, "supersedes") {
		t.Errorf("the task behind it is explained by %+v", e)
	}
	waiters, err := s.worker.Queue().Inspector().Waiters(t.Context(), "order:1", 10)
	if err != nil || len(waiters) != 2 || waiters[0].Supersedes != "orders" || waiters[1].Supersedes != "" {
		t.Errorf("the waiters are %+v, %v", waiters, err)
	}
}

func TestATaskWhoseWorkersHaveDiedIsExplained(t *testing.T) {
	t.Parallel()
	s := newSystem(t).start()
	task := s.await(middleware.Acquired, "any", order1)
	if err := s.inspector.PauseQueue(task.Queue); err != nil {
		t.Fatal(err)
	}
	hash, engine := line.Task(task).Hash(), (*line.Engine)(s.worker.Queue())
	for n := 1; n <= 2; n++ {
		run := s.client.HGet(t.Context(), hash, asynqwire.PendingSinceField).Val()
		left, err := engine.TakeBack(t.Context(), line.Remnant{Task: line.Task(task), Run: run, Silent: true}, 3,
			func([]string) (bool, error) { return true, nil })
		if err != nil || left != line.Back {
			t.Fatalf("it is %v, %v", left, err)
		}
		e := s.explain(task)
		want := map[int]string{1: "; a run of it has ended because its worker died", 2: "; 2 of its last runs have ended because its worker died"}[n]
		if e.Cause != explain.QueuePaused || e.Deaths != n || !strings.Contains(e.Why, want) || strings.Contains(e.Remedy, "railtoken cancel") != (n > 1) {
			t.Errorf("after %d deaths it is explained by %+v", n, e)
		}
		if err := s.client.LMove(t.Context(), asynqwire.Pending(task.Queue), asynqwire.Active(task.Queue), "RIGHT", "LEFT").Err(); err != nil {
			t.Fatal(err)
		}
		if err := s.client.HSet(t.Context(), hash, asynqwire.StateField, "active", asynqwire.PendingSinceField, run).Err(); err != nil {
			t.Fatal(err)
		}
	}
}
