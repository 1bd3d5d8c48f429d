package middleware_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/railtoken/railtoken/internal/redistest"
)

// The tests on real servers mostly wait: for timers of asynq, and for servers that are away. On few cores more of them
// run side by side.
func TestMain(m *testing.M) {
	redistest.SideBySide(max(4, runtime.GOMAXPROCS(0)))
	os.Exit(m.Run())
}
