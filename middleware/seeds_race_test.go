//go:build race

package middleware_test

// Fewer with the race detector, which makes each several times as long: make thorough plays all.
const (
	releaseSeeds = 6
	restartSeeds = 2
	crowdTasks   = 60
	ownTasks     = 20
	hotTasks     = 48
	heldTasks    = 30
	longMinutes  = 5
)
