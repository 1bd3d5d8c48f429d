package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// dieWithParent lets the kernel kill the server when the test process dies without running its cleanups, as it does after a
// panic or a timeout.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

func (p *process) interrupt() error { return p.cmd.Process.Signal(syscall.SIGTERM) }

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// pause returns when the main thread, which executes the commands, has stopped: the signal alone is only a request.
func (p *process) pause() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return poll(ctx, p.exited, func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			return err
		}
		// The state follows the name, which is in brackets and may itself hold a bracket.
		_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		if !bytes.HasPrefix(state, []byte("T")) {
			return errors.New("the process has not stopped yet")
		}
		return nil
	})
}
