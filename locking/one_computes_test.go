package locking

import "testing"

// computing is the place of the one test that computes.
var computing = make(chan struct{}, 1)

// Compute begins a test that computes all the time rather than wait: one runs at a time, so that those that wait are
// not late for it.
func Compute(t testing.TB) {
	computing <- struct{}{}
	t.Cleanup(func() { <-computing })
}
