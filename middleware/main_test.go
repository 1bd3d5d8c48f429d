package middleware_test

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// The tests on real servers mostly wait: for timers of asynq, and for servers that are away. On few cores more of them
// run side by side.
func TestMain(m *testing.M) {
	// The fake Redis makes an interpreter for each script, so the collector would take a third of the time.
	debug.SetGCPercent(400)
	redistest.SideBySide(max(4, runtime.GOMAXPROCS(0)))
	os.Exit(m.Run())
}
