//go:build unix

package usage

import (
	"syscall"
	"time"
)

// process returns the processor time that this process has used so far, without that of the servers that it has started.
func process() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
