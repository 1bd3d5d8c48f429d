package server

import "syscall"

// DieWithParent lets the kernel kill a process when this one dies without having ended it.
func DieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
