//go:build suspend

package suspendtest

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/childtest"
)

// Commands of a child.
const (
	stop = "stop the clock"
	goOn = "continue"
	done = "ok"
)

// Serve has a child carry out commands, each of which is answered by one line, until its parent ends it.
func Serve(carryOut func(command []string) (answer string)) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		answer := done
		switch command := in.Text(); command {
		case stop:
			runtime.StopMonotonic()
		case goOn:
			runtime.ContinueMonotonic()
		default:
			answer = carryOut(strings.Fields(command))
		}
		fmt.Println(answer)
	}
}

// Ask has a child carry out a command, and returns the answer.
func Ask(tb testing.TB, c *childtest.Child, command ...string) string {
	tb.Helper()
	c.Tell(tb, strings.Join(command, " "))
	return c.Says(tb)
}

// Suspend suspends the machine of a child while a function runs, and for d at least.
func Suspend(tb testing.TB, c *childtest.Child, d time.Duration, meanwhile func()) {
	tb.Helper()
	Ask(tb, c, stop)
	Stop(tb, c, d, meanwhile)
	Ask(tb, c, goOn)
}

// Stop does what Suspend does for a child that holds back its clock by itself.
func Stop(tb testing.TB, c *childtest.Child, d time.Duration, meanwhile func()) {
	tb.Helper()
	c.Signal(tb, syscall.SIGSTOP)
	over := time.After(d)
	meanwhile()
	<-over
	c.Signal(tb, syscall.SIGCONT)
}
