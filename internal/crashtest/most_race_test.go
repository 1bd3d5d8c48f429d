//go:build race

package crashtest_test

// With the race detector, which makes a run several times as long, there are fewer faults: make thorough plays all.
const (
	mostOf     = 1
	everyFault = false
)
