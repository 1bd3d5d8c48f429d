//go:build !linux

package server

import "syscall"

// dieWithParent does nothing: only Linux knows how.
func dieWithParent() *syscall.SysProcAttr { return nil }

// inMemory knows no directory whose files are in memory.
func inMemory(int) (dir string, ok bool) { return "", false }
