package server

import (
	"cmp"
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// NewAlarm returns a function that waits until a time, within some 50 µs, for one goroutine at a time, and its end. If the
// context ends first, it returns the cause, and can be used no longer.
// Go's timers are late by up to a millisecond, less so in a process that is busy. No thread waits meanwhile: sleeping ones would keep
// the processors from other goroutines.
func NewAlarm() (until func(context.Context, time.Time) error, end func()) {
	fd, failed := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if failed != nil {
		return func(context.Context, time.Time) error { return failed }, func() {}
	}
	timer := os.NewFile(uintptr(fd), "timer")
	expirations := make([]byte, 8)
	return func(ctx context.Context, due time.Time) error {
		defer context.AfterFunc(ctx, func() { _ = timer.SetReadDeadline(time.Now()) })()
		for left := time.Until(due); left > 0; left = time.Until(due) {
			at := unix.ItimerSpec{Value: unix.NsecToTimespec(left.Nanoseconds())}
			if err := unix.TimerfdSettime(fd, 0, &at, nil); err != nil {
				return err
			}
			if _, err := timer.Read(expirations); err != nil {
				return cmp.Or(context.Cause(ctx), err)
			}
		}
		return nil
	}, func() { _ = timer.Close() }
}
