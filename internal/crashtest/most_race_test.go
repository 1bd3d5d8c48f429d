//go:build race

package crashtest_test

// With the race detector, which makes a run several times as long, there are fewer faults: one at each step of a scenario,
// so that a step of four scenarios meets all of them. make thorough plays all.
const (
	mostOf     = 1
	everyFault = false
)
