package redistest

import (
	"os"
	"os/exec"
	"testing"
)

const (
	// serverBinary is the program that Start and everything built on it look for in PATH.
	serverBinary = "redis-server"
	// envRequire turns a missing redis-server from a skip into a failure.
	envRequire = "REDISTEST_REQUIRE"
)

// binary returns the path of redis-server. Without one it does not return: tb is skipped, or fails when
// REDISTEST_REQUIRE is set.
func binary(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath(serverBinary)
	if err == nil {
		return path
	}
	if os.Getenv(envRequire) != "" {
		tb.Fatalf("needs redis-server: %s cannot run: %v (\"make test\" installs it)", tb.Name(), err)
	}
	tb.Skipf("needs redis-server: %s is left out: %v (\"make test\" installs it)", tb.Name(), err)
	return ""
}
