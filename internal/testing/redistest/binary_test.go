package redistest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/internal/testing/testserver"
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

func TestAnotherServerTakesThePlaceOfRedisServer(t *testing.T) {
	program, err := exec.LookPath("redis-server")
	testserver.Needed(t, "redis-server", err)
	dir := t.TempDir()
	other, mark := filepath.Join(dir, "other-server"), filepath.Join(dir, "started")
	script := "#!/bin/sh\n: >'" + mark + "'\nexec '" + program + "' \"$@\"\n"
	if err := os.WriteFile(other, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("REDISTEST_SERVER", other)
	if err := redistest.Start(t).Client(t).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("the other program was not started: %v", err)
	}
	t.Setenv("REDISTEST_SERVER", filepath.Join(dir, "none"))
	t.Setenv("REDISTEST_REQUIRE", "1")
	outcome(t, func(tb testing.TB) { redistest.Start(tb) }).mustFail(t, "needs redis-server: ", t.Name())
}
