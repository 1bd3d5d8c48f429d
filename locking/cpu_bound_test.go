package locking

import "testing"

// computing has room for the one CPU-bound test that runs.
var computing = make(chan struct{}, 1)

// Compute blocks until no other CPU-bound test runs, so that tests with timers get their share of the machine.
func Compute(t testing.TB) {
	computing <- struct{}{}
	t.Cleanup(func() { <-computing })
}
