//go:build !linux

package process

import "syscall"

// dieWithParent does nothing: only Linux knows how.
func dieWithParent() *syscall.SysProcAttr { return nil }

// MemoryDir knows no directory whose files are in memory.
func MemoryDir(uint64) (dir string, ok bool) { return "", false }
