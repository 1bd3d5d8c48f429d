package middleware_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// The tests on real servers mostly wait: for timers of asynq, and for servers that are away. On few cores more of them run side by side.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
