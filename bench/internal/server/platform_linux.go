package server

import "syscall"

const (
	memoryDir   = "/dev/shm"
	tmpfsMagic  = 0x01021994
	etcdMinimum = 256 << 20 // an etcd sets aside two files of 64 MB for its log
)

// dieWithParent lets the kernel kill a process when this one dies without having ended it.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// inMemory returns a directory whose files are in memory, when there is one with room for the data of n members of
// etcd.
func inMemory(n int) (dir string, ok bool) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memoryDir, &fs); err != nil {
		return "", false
	}
	free := fs.Bavail * uint64(fs.Bsize)
	return memoryDir, fs.Type == tmpfsMagic && free >= uint64(n)*etcdMinimum
}
