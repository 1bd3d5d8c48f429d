//go:build unix

package main

import (
	"os"
	"syscall"
)

// halt stops a process by SIGSTOP, and resume continues it by SIGCONT.
func halt(p *os.Process) error   { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
