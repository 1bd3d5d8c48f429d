// Package childtest runs a test program again as another process, which a test can stop, continue and kill. The two
// exchange lines of text.
package childtest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/testserver"
)

// Child is another process of a test program.
type Child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

// Start starts one with additions to its environment, by which TestMain knows it. It is killed at the end of the test.
func Start(tb testing.TB, env ...string) *Child {
	tb.Helper()
	testserver.LeaveToLong(tb)
	program, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(program) //nolint:noctx // the cleanup kills it
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &Child{cmd, in, bufio.NewScanner(out)}
}

// Says returns its next line.
func (c *Child) Says(tb testing.TB) string {
	tb.Helper()
	if !c.lines.Scan() {
		tb.Fatalf("the child has ended: %v", c.lines.Err())
	}
	return c.lines.Text()
}

// Tell sends it a line.
func (c *Child) Tell(tb testing.TB, line string) {
	tb.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		tb.Fatal(err)
	}
}

// Signal sends it a signal.
func (c *Child) Signal(tb testing.TB, s os.Signal) {
	tb.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		tb.Fatal(err)
	}
}
