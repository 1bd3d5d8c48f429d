//go:build !linux

package distance

import "time"

// sleepUntil returns at a time, up to a millisecond late.
func sleepUntil(due time.Time) { time.Sleep(time.Until(due)) }
