//go:build !thorough

package crashtest_test

// make test has one fault at each step of a scenario, so that a step of four scenarios meets all of them. make thorough plays all.
const (
	mostOf     = 1
	everyFault = false
)
