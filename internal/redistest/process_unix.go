//go:build unix && !linux

package redistest

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }

func (p *process) interrupt() error { return p.cmd.Process.Signal(syscall.SIGTERM) }

func (p *process) pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
