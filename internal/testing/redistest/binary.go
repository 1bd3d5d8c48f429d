package redistest

import (
	"cmp"
	"os"
	"os/exec"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/testserver"
)

// serverBinary is the program that Start and everything built on it look for in PATH.
const serverBinary = "redis-server"

// serverVariable names another program that takes the arguments of redis-server: another version, or a Valkey.
const serverVariable = "REDISTEST_SERVER"

// binary returns the path of the server. Without one it does not return: see [testserver.Needed].
func binary(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv(serverVariable), serverBinary))
	testserver.Needed(tb, serverBinary, err)
	return path
}
