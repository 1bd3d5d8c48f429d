package integration

import (
	"testing"

	"github.com/railtoken/railtoken/internal/dbtest"
	"github.com/railtoken/railtoken/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Verify(dbtest.Stopping(m)) }
