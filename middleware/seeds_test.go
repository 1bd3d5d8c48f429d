//go:build thorough

package middleware_test

// How many random plans and sequences are played, and how long and with how many tasks others are.
const (
	releaseSeeds = 40
	restartSeeds = 16
	crowdTasks   = 120
	ownTasks     = 60
	hotTasks     = 120
	heldTasks    = 50
	longMinutes  = 10
)
