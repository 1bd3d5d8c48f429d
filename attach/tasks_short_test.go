//go:build !thorough

package attach_test

import "time"

// make test plays few, make thorough all.
const (
	lostReplies = 500
	stranded    = 600
	excluded    = 300
	busy        = 1000 // before and after the one whose turn is watched
)

// everyPair is whether each order is tried in each place. Otherwise each order is tried on one Redis, and one of them in each other place.
const everyPair = false

const (
	recovered  = 10 * time.Second // after how long workers are dead
	stoppedFor = 0                // how long a worker stands still, at least until its task was taken back
	outage     = 12 * time.Second // how long Redis is away
)
