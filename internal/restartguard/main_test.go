package restartguard_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // it reports every dial to a server that a test has killed
	redistest.SideBySide(8)
	leaktest.Verify(m)
}
