package tasks_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// These tests run programs that mostly wait: for work that is a sleep, and for timers. On few cores more of them run side by side.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(6, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
