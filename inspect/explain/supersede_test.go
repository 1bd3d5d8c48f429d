package explain_test

import (
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/inspect/explain"
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
