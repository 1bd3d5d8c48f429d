package redistest

import (
	"os/exec"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/testserver"
)

// serverBinary is the program that Start and everything built on it look for in PATH.
const serverBinary = "redis-server"

// binary returns the path of redis-server. Without one it does not return: see [testserver.Needed].
func binary(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath(serverBinary)
	testserver.Needed(tb, serverBinary, err)
	return path
}
