// Package process runs the servers that tests and benchmarks start: child processes that can be stopped, killed and
// paused, and that do not outlive the process that started them.
package process

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Command is a program to run.
type Command struct {
	Path string
	Args []string
	Dir  string   // its working directory
	Log  string   // the file that gets its output
	Env  []string // added to the environment
	User *User    // nil for that of this process
}

// User is the identity under which a process runs, for servers that refuse to run as root.
type User struct{ UID, GID int }

// Process is a program that has been started. Its methods may be called from any goroutine.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts a program. Its output goes to a file, not through a pipe, so that no goroutine depends on it.
func Start(c Command) (*Process, error) {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("process: %w", err)
	}
	defer log.Close()

	cmd := exec.Command(c.Path, c.Args...) //nolint:noctx // it ends by a signal
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	p.cmd.Dir = c.Dir
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.Stdout = log
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = attributes(c.User)

	started := make(chan error)
	go func() {
		// The death signal is sent when the thread that forked ends, not when the process does: keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("process: %w", err)
	}
	return p, nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited returns a channel that is closed when the process is gone and reaped.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Succeeded reports whether the process has ended with status 0.
func (p *Process) Succeeded() bool {
	select {
	case <-p.exited:
		return p.cmd.ProcessState.Success()
	default:
		return false
	}
}

// Kill ends the process at once, as a crash would, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// LogSize returns the size of a log, 0 if there is none.
func LogSize(name string) int64 {
	fi, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return fi.Size()
}

// LogTail returns the last 20 lines of a log from an offset on.
func LogTail(name string, from int64) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b[min(from, int64(len(b))):])), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
