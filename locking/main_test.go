package locking_test

import (
	"context"
	"flag"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/leaktest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})                               // it reports every dial to a server that a test has killed
	if err := flag.Set("test.parallel", "16"); err != nil { // most tests wait; -parallel on the command line is read later and wins
		panic(err)
	}
	leaktest.Verify(m)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
