//go:build !linux

package server

import "syscall"

// DieWithParent does nothing: only Linux knows how.
func DieWithParent() *syscall.SysProcAttr { return nil }
