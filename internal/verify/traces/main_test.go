package traces

import (
	"testing"

	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestMain(m *testing.M) {
	redistest.SideBySide(4) // most of these tests wait
	leaktest.Verify(m)
}
