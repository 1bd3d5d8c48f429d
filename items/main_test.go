package items_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable()        // it reports connections that a test has closed
	redistest.SideBySide(10) // most of these tests wait
	leaktest.Verify(m)
}
