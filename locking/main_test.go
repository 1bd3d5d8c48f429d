package locking_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/leaktest"
	"github.com/railtoken/railtoken/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // it reports every dial to a server that a test has killed
	redistest.SideBySide(8)
	leaktest.Verify(m)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
