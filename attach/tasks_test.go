//go:build thorough

package attach_test

import "time"

// How many tasks some tests run.
const (
	lostReplies = 5000
	stranded    = 1000
	excluded    = 600
	busy        = 2000 // before and after the one whose turn is watched
)

// everyPair is whether each order is tried in each place.
const everyPair = true

const (
	recovered  = 20 * time.Second // after how long workers are dead
	stoppedFor = 60 * time.Second // how long a worker stands still, at least until its task was taken back
	outage     = 60 * time.Second // how long Redis is away
)
