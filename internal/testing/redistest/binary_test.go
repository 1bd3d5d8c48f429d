package redistest_test

import (
	"testing"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestWithoutRedisServerATestIsSkippedByName(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDISTEST_REQUIRE", "")
	outcome(t, func(tb testing.TB) { redistest.Start(tb) }).
		mustSkip(t, "needs redis-server: ", t.Name(), "make test")
	outcome(t, func(tb testing.TB) { redistest.StartCluster(tb, 3) }).
		mustSkip(t, "needs redis-server: ", t.Name(), "make test")
}

func TestWithoutRedisServerATestFailsWhenItIsRequired(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDISTEST_REQUIRE", "1")
	outcome(t, func(tb testing.TB) { redistest.Start(tb) }).
		mustFail(t, "needs redis-server: ", t.Name(), "make test")
}
