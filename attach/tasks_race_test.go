//go:build race

package attach_test

// Fewer with the race detector, which makes each several times as long: make thorough plays all.
const (
	lostReplies = 1500
	stranded    = 600
	excluded    = 300
)
