package inspect_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // it reports every dial to a server that a test has killed
	if os.Getenv(childTasks) != "" {
		if err := childMain(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	redistest.SideBySide(8) // most of these tests wait
	leaktest.Verify(m)
}
