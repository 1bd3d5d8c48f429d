package redistest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/redistest"
)

// TestRedisServerIsInstalled keeps a plain "go test ./..." from leaving tests out silently.
func TestRedisServerIsInstalled(t *testing.T) {
	requireInstalled(t)
}

func TestAMissingRedisServerNamesTheTestsLeftOut(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDISTEST_ALLOW_LEFT_OUT", "")
	outcome(t, requireInstalled).mustFail(t,
		"./internal/redistest: TestKillLosesWhatWasNotPersisted",
		"make test",
		"REDISTEST_ALLOW_LEFT_OUT=1",
	)
}

func TestAMissingRedisServerCanBeAccepted(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDISTEST_ALLOW_LEFT_OUT", "1")
	outcome(t, requireInstalled).mustSkip(t, "./internal/redistest: TestKillLosesWhatWasNotPersisted")
}

// requireInstalled fails when redis-server is missing, with every test that is left out for want of it and the remedy; when that is
// accepted by REDISTEST_ALLOW_LEFT_OUT, it skips with the same list.
func requireInstalled(tb testing.TB) {
	tb.Helper()
	_, err := exec.LookPath("redis-server")
	if err == nil {
		return
	}
	root, rootErr := redistest.ModuleRoot()
	if rootErr != nil {
		tb.Fatal(err, rootErr)
	}
	names, listErr := redistest.LeftOut(root)
	if listErr != nil {
		tb.Fatal(err, listErr)
	}
	list := "  " + strings.Join(names, "\n  ")
	if os.Getenv("REDISTEST_ALLOW_LEFT_OUT") != "" {
		tb.Skipf("no redis-server (%v): these %d tests are left out:\n%s", err, len(names), list)
	}
	tb.Fatalf("no redis-server (%v): these %d tests are left out:\n%s\n"+
		"Run \"make test\", which installs it, or set REDISTEST_ALLOW_LEFT_OUT=1 to accept that they are left out.",
		err, len(names), list)
}
