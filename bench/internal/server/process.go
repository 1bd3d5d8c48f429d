package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
)

// process is a server's process. It dies with this program, where the kernel can see to that.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone
}

// run starts the program, whose output goes to log.
func run(log io.Writer, program string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(program, args...), exited: make(chan struct{})} //nolint:noctx // it ends by end
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

// Pause stops the process as it is: connections stay open and nothing is answered.
func (p *process) Pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets a paused process run on.
func (p *process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// end kills the process at once, also a paused one, and returns when it is gone.
func (p *process) end() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// freeAddrs returns addresses that no process listens on.
func freeAddrs(ctx context.Context, n int) ([]string, error) {
	addrs := make([]string, n)
	var listeners []net.Listener // closed when all are known, or two addresses would be the same
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	for i := range addrs {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, l)
		addr, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			return nil, fmt.Errorf("%s is not a TCP address", l.Addr())
		}
		addrs[i] = net.JoinHostPort(loopback, strconv.Itoa(addr.Port))
	}
	return addrs, nil
}
