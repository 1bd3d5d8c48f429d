//go:build thorough

package attach_test

// How many tasks some tests run.
const (
	lostReplies = 5000
	stranded    = 1000
	excluded    = 600
)
