//go:build !linux

package distance

import "time"

// newAlarm returns a function that returns at a time, up to a millisecond late, and its end.
func newAlarm() (until func(time.Time), end func()) {
	return func(due time.Time) { time.Sleep(time.Until(due)) }, func() {}
}
