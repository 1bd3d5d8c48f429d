//go:build unix && !linux

package process

import "syscall"

func attributes(u *User) *syscall.SysProcAttr {
	if u == nil {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}}
}

// Interrupt asks the process to end.
func (p *Process) Interrupt() error { return p.cmd.Process.Signal(syscall.SIGTERM) }

// Pause stops the process, without its children.
func (p *Process) Pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets a paused process run on.
func (p *Process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// KillAll ends the process at once. Its children end by themselves.
func (p *Process) KillAll() error {
	p.Kill()
	return nil
}
