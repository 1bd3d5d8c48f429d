// Package leaktest makes a package's tests fail if they leave goroutines behind.
package leaktest

import (
	"runtime"
	"strings"
	"time"

	"go.uber.org/goleak"
)

// Verify runs the tests of m and exits: with status 1 if they passed but left a goroutine behind.
func Verify(m goleak.TestingM) { goleak.VerifyTestMain(patient{m}) }

type patient struct{ goleak.TestingM }

func (p patient) Run() int {
	code := p.TestingM.Run()
	awaitRedials(10 * time.Second)
	return code
}

// redial is go-redis's goroutine that dials a dead server: it sleeps for a second between two attempts, which is longer than goleak
// waits, and only then sees that its pool was closed.
const redial = "/internal/pool.(*ConnPool).tryDial("

// awaitRedials returns when go-redis dials no more, or after atMost: goleak then reports the pool that was left open.
func awaitRedials(atMost time.Duration) {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for end := time.Now().Add(atMost); strings.Contains(stacks(), redial) && time.Now().Before(end); {
		<-poll.C
	}
}

// stacks are those of all goroutines.
func stacks() string {
	for size := 1 << 16; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return string(buf[:n])
		}
	}
}
