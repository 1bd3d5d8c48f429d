//go:build race

package crashtest_test

// mostOf is smaller with the race detector, which makes a run several times as long: make thorough plays more.
const mostOf = 2
