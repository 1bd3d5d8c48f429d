//go:build !thorough

package middleware_test

// make test plays few, make thorough all.
const (
	releaseSeeds = 6
	restartSeeds = 2
	crowdTasks   = 60
	ownTasks     = 20
	hotTasks     = 48
	heldTasks    = 30
	longMinutes  = 5
)
