package redistest_test

import (
	"os/exec"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/testserver"
)

// TestRedisServerIsInstalled keeps a plain "go test ./..." from leaving tests out silently.
func TestRedisServerIsInstalled(t *testing.T) {
	requireInstalled(t)
}

func TestAMissingRedisServerNamesTheTestsLeftOut(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDISTEST_ALLOW_LEFT_OUT", "")
	outcome(t, requireInstalled).mustFail(t,
		"./internal/testing/redistest: TestKillLosesWhatWasNotPersisted",
		"make test",
		"REDISTEST_ALLOW_LEFT_OUT=1",
	)
}

func TestAMissingRedisServerCanBeAccepted(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDISTEST_ALLOW_LEFT_OUT", "1")
	outcome(t, requireInstalled).mustSkip(t, "./internal/testing/redistest: TestKillLosesWhatWasNotPersisted")
}

// requireInstalled fails when redis-server is missing: see [testserver.Server.Require].
func requireInstalled(tb testing.TB) {
	tb.Helper()
	_, err := exec.LookPath("redis-server")
	testserver.Server{
		Name: "redis-server", Import: "github.com/railtoken/railtoken/internal/testing/redistest",
		Starters: []string{"Start", "StartCluster", "StartSentinel"},
	}.Require(tb, err)
}
