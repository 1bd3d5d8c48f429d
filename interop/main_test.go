package interop_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/railtoken/railtoken/internal/testing/leaktest"
)

func TestMain(m *testing.M) {
	logging.Disable() // it reports every dial to a server that a test has killed
	leaktest.Verify(m)
}
