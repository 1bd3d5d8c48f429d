package redistest_test

import (
	"testing"

	"github.com/railtoken/railtoken/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Verify(m) }
