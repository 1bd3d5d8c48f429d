// Package process runs servers as child processes, for tests and benchmarks: processes that can be stopped, continued
// and killed, and that die with this one.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"runtime"
	"strconv"
)

// Process is a server's process. It dies with this program, where the kernel can see to that.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone
}

// Run starts a program in the working directory, with its output going to log.
func Run(log io.Writer, program string, args ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(program, args...), exited: make(chan struct{})} //nolint:noctx // it ends by Kill
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	go func() {
		// The death signal comes when the thread that forked ends: keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// PID returns the process's ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited returns a channel that is closed when the process is gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Pause stops the process as it is: connections stay open, and nothing is answered.
func (p *Process) Pause() error { return pause(p.cmd.Process) }

// Resume lets a paused process continue.
func (p *Process) Resume() error { return resume(p.cmd.Process) }

// Kill ends the process at once, even a paused one, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

const (
	loopback = "127.0.0.1"

	// The ports lie below the range from which Linux and macOS take the local ports of outgoing connections, so that a
	// server that was killed can come back on its port. They lie above those of package redistest.
	portMin = 21000
	portMax = 30999
)

// FreeAddrs returns n loopback addresses on which no process listens.
func FreeAddrs(ctx context.Context, n int) ([]string, error) {
	var addrs []string
	var listeners []net.Listener // closed when all are known, or two addresses could be the same
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	for range 1000 {
		if len(addrs) == n {
			return addrs, nil
		}
		addr := net.JoinHostPort(loopback, strconv.Itoa(portMin+rand.IntN(portMax-portMin+1)))
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
		if err != nil {
			if ctx.Err() != nil {
				return nil, errors.Join(ctx.Err(), err)
			}
			continue
		}
		listeners, addrs = append(listeners, l), append(addrs, addr)
	}
	return nil, fmt.Errorf("no %d free ports in %d-%d", n, portMin, portMax)
}
