package distance

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// newAlarm returns a function that returns at a time, within some 50 µs, for one goroutine at a time, and its end. It
// waits by a timer of the kernel, because Go's are rounded up to a millisecond. No thread waits meanwhile: sleeping ones
// would keep the processors from the goroutines of other connections.
func newAlarm() (until func(time.Time), end func()) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return func(due time.Time) { time.Sleep(time.Until(due)) }, func() {}
	}
	timer := os.NewFile(uintptr(fd), "timer")
	expirations := make([]byte, 8)
	return func(due time.Time) {
		for left := time.Until(due); left > 0; left = time.Until(due) {
			at := unix.ItimerSpec{Value: unix.NsecToTimespec(left.Nanoseconds())}
			if unix.TimerfdSettime(fd, 0, &at, nil) != nil {
				return
			}
			if _, err := timer.Read(expirations); err != nil {
				return
			}
		}
	}, func() { _ = timer.Close() }
}
