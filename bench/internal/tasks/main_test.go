package tasks_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// These tests run programs that mostly wait: for work that is a sleep, and for timers. On few cores more of them run side by side.
func TestMain(m *testing.M) {
	redistest.SideBySide(max(6, runtime.GOMAXPROCS(0)))
	os.Exit(m.Run())
}
