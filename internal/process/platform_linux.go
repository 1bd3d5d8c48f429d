package process

import "syscall"

const (
	memoryDir  = "/dev/shm"
	tmpfsMagic = 0x01021994
)

// dieWithParent lets the kernel kill a process when this one dies without having ended it.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// MemoryDir returns a directory whose files are in memory, if there is one with room for size bytes.
func MemoryDir(size uint64) (dir string, ok bool) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memoryDir, &fs); err != nil {
		return "", false
	}
	free := fs.Bavail * uint64(fs.Bsize)
	return memoryDir, fs.Type == tmpfsMagic && free >= size
}
