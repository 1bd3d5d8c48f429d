package distance

import (
	"syscall"
	"time"
)

// precise is the longest time for which a timer of Go is too coarse: it rounds up to a millisecond.
const precise = 5 * time.Millisecond

// sleepUntil returns at a time, within some 50 µs.
func sleepUntil(due time.Time) {
	left := time.Until(due)
	if left > precise {
		time.Sleep(left - precise)
	}
	for left = time.Until(due); left > 0; left = time.Until(due) {
		t := syscall.NsecToTimespec(left.Nanoseconds())
		_ = syscall.Nanosleep(&t, nil) // a signal ends it early
	}
}
