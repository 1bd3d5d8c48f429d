package redistest_test

import (
	"testing"

	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestMain(m *testing.M) {
	redistest.SideBySide(8)
	leaktest.Verify(m)
}
