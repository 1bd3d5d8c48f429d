package explain_test

import (
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/inspect/explain"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// elsewhere is a Locker whose locks no Inspector finds, and whose backend is that of no lock server.
type elsewhere struct{ locking.Locker }

func TestAHolderInAnotherStoreIsNamed(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	locker, err := locking.NewSingle(s.client, locking.SingleOptions{RedisKey: func(key string) string { return "{" + key + "}" }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close() })
	s.cfg.Locker = elsewhere{locker}
	s.start()
	s.await(middleware.Acquired, "any", order1, asynq.TaskID("first"))
	task := s.await(middleware.Parked, "any", order1)
	var e explain.Explanation
	s.until("the holder is reported", func() bool {
		e = s.explain(task)
		return e.Cause == explain.Held
	})
	if e.HolderTask != "default/first" || e.HeldSince == nil || !strings.Contains(e.Why, "held by task default/first") {
		t.Errorf("it is explained by %+v", e)
	}
}
