//go:build !linux

package process

// MemoryDir knows no directory whose files are in memory.
func MemoryDir(uint64) (dir string, ok bool) { return "", false }
