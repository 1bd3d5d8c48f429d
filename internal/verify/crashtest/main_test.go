package crashtest_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/railtoken/railtoken/internal/testing/leaktest"
)

func TestMain(m *testing.M) {
	logging.Disable() // it reports every connection that a stopped process leaves
	leaktest.Verify(m)
}
