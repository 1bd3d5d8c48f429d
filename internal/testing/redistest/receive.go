package redistest

import (
	"testing"
	"time"
)

// Receive returns the next value of c. The test fails when none comes within a time.
func Receive[T any](tb testing.TB, c <-chan T, within time.Duration) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(within):
		tb.Fatalf("nothing came within %v", within)
		panic("unreachable")
	}
}
