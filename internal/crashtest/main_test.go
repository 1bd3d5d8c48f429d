package crashtest_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/leaktest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // it reports every connection that a stopped process leaves
	leaktest.Verify(m)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// quiet is a logger for asynq that says nothing.
type quiet struct{}

func (quiet) Debug(...any) {}
func (quiet) Info(...any)  {}
func (quiet) Warn(...any)  {}
func (quiet) Error(...any) {}
func (quiet) Fatal(...any) {}
