package integration

import (
	"testing"

	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Verify(dbtest.Stopping(m)) }
