//go:build !unix

package process

import (
	"errors"
	"syscall"
)

func attributes(*User) *syscall.SysProcAttr { return nil }

// Interrupt ends the process.
func (p *Process) Interrupt() error { return p.cmd.Process.Kill() }

// Pause is not supported.
func (p *Process) Pause() error { return errors.ErrUnsupported }

// Resume is not supported.
func (p *Process) Resume() error { return errors.ErrUnsupported }

// KillAll ends the process.
func (p *Process) KillAll() error {
	p.Kill()
	return nil
}
