package worker_test

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/railtoken/railtoken/internal/testing/leaktest"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // most workers of these tests have no Logger
	logging.Disable()                              // it reports every dial to a server that is not there
	leaktest.Verify(m)
}

// environment sets variables, each "name=value", unsets all others of ours, and returns what undoes it.
func environment(vars ...string) (restore func()) {
	before := os.Environ()
	for _, entry := range before {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "RAILTOKEN_") {
			os.Unsetenv(name)
		}
	}
	set := func(entries []string) {
		for _, entry := range entries {
			name, value, _ := strings.Cut(entry, "=")
			os.Setenv(name, value)
		}
	}
	set(vars)
	return func() {
		os.Clearenv()
		set(before)
	}
}
